// Granite 4: Mamba2 mixers with attention in a few of the layers, and either
// experts beside a shared one or a plain network. Reference: mlx-lm 0.32.2,
// models/granitemoehybrid.py.
#include "mlxx/models/decoder_model.h"
#include "mlxx/models/recurrent_tensors.h"
#include "mlxx/models/registry.h"
#include "mlxx/nn/sparse_mlp.h"

namespace mlxx::models::granitemoehybrid {

extern const ModelInfo kInfo;

namespace {

int expert_count(const JsonView& config) {
  return static_cast<int>(config.integer_or("num_local_experts", 0, 0, 65536));
}

nn::Mamba2Spec read_mixer(const DecoderConfig& config) {
  nn::Mamba2Spec mixer;
  mixer.hidden_size = config.size("hidden_size");
  mixer.heads = config.size("mamba_n_heads");
  mixer.head_size = config.size("mamba_d_head");
  mixer.groups = config.size("mamba_n_groups");
  mixer.state_size = config.size("mamba_d_state");
  mixer.conv_width =
      static_cast<int>(config.view().integer("mamba_d_conv", 2, 64));
  mixer.conv_bias = config.view().boolean("mamba_conv_bias");
  mixer.in_bias = config.view().boolean("mamba_proj_bias");
  mixer.out_bias = mixer.in_bias;
  std::tie(mixer.dt_lowest, mixer.dt_highest) =
      read_step_limits(config.view(), {0.001f, 100.0f});
  mixer.norm = nn::ScanNorm::after_gate;
  mixer.norm_eps = config.number("rms_norm_eps");
  mixer.round_skip = true;
  check_mamba2(config.view(), mixer, "mamba_n_groups");
  return mixer;
}

// Lies in the layer itself: block_sparse_moe and shared_mlp.
nn::SparseMlpSpec read_experts(const DecoderConfig& config) {
  nn::SparseMlpSpec sparse;
  sparse.experts = {
      .experts = expert_count(config.view()),
      .hidden_size = config.size("hidden_size"),
      .intermediate_size = config.size("intermediate_size")};
  auto top_k = static_cast<int>(
      config.view().integer("num_experts_per_tok", 1, sparse.experts.experts));
  sparse.route = [top_k](const nn::RouterInput& in) {
    return nn::top_k_then_softmax(
        in.logits,
        top_k,
        nn::TopK::last,
        nn::ChosenSoftmax::precise);
  };
  sparse.router_name = "block_sparse_moe.router.layer";
  sparse.experts_name = "block_sparse_moe.switch_mlp";
  sparse.shared = nn::SharedExpert::added;
  sparse.shared_size = config.size("shared_intermediate_size");
  sparse.shared_name = "shared_mlp";
  return sparse;
}

// Per layer, under the names of before and after transformers 5.
std::vector<bool> read_attends(const DecoderConfig& config, int layers) {
  auto types = config.layer_types(layers);
  if (types.empty()) {
    config.view().fail_at("layer_types", "is missing");
  }
  std::vector<bool> attends;
  for (const auto& type : types) {
    attends.push_back(type == "attention" || type == "full_attention");
    if (!attends.back() && type != "mamba" && type != "linear_attention") {
      fail(
          ErrorKind::unsupported,
          config.view().place(),
          "layer type '{}' is not known to granitemoehybrid",
          type);
    }
  }
  return attends;
}

DecoderSpec read_spec(const DecoderConfig& config) {
  config.require_activation({"silu"});
  DecoderSpec spec = config.decoder();
  spec.embedding_multiplier = config.number("embedding_multiplier");
  spec.logits_divisor = config.number("logits_scaling");
  if (spec.logits_divisor == 0) {
    config.view().fail_at("logits_scaling", "is 0");
  }
  auto& first = spec.layers.front();
  bool rotates =
      config.view().string_or("position_embedding_type", "rope") != "nope";
  auto rope = rotates
      ? config.plain_rope(first.head_size, config.rope_base(10000))
      : nullptr;
  bool bias = config.view().boolean("attention_bias");
  spec.for_each_layer([&](nn::LayerSpec& layer, int) {
    layer.attention_scale = config.number("attention_multiplier");
    layer.residual_multiplier = config.number("residual_multiplier");
    layer.qkv_bias = bias;
    layer.output_bias = bias;
    layer.mlp_bias = config.flag_or("mlp_bias", false);
    layer.rope = rope;
  });
  return spec;
}

std::unique_ptr<Model> make(const hub::Checkpoint& checkpoint) {
  DecoderConfig config(checkpoint);
  DecoderSpec spec = read_spec(config);
  auto attends = read_attends(config, static_cast<int>(spec.layers.size()));
  DecoderLayers layers;
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    const auto& layer = spec.layers[i];
    nn::MixerLayerParts parts;
    if (attends[i]) {
      parts.mixer = std::make_unique<nn::AttentionMixer>(layer);
      parts.mixer_name = "self_attn";
    } else {
      parts.mixer = std::make_unique<nn::Mamba2Mixer>(read_mixer(config));
      parts.mixer_name = "mamba";
    }
    parts.mixer_norm = "input_layernorm";
    if (expert_count(config.view()) > 0) {
      parts.network = std::make_unique<nn::SparseMlp>(read_experts(config));
    } else {
      parts.network = std::make_unique<nn::MlpNetwork>(layer);
      parts.network_name = "mlp";
    }
    parts.network_norm = "post_attention_layernorm";
    layers.push_back(std::make_unique<nn::MixerLayer>(
        nn::MixerLayerOptions{
            spec.hidden_size,
            layer.norm,
            layer.residual_multiplier},
        std::move(parts)));
  }
  return std::make_unique<DecoderModel>(std::move(spec), std::move(layers));
}

// input_linear holds gate above up.
void split_network(
    hub::TensorRewrite& tensors,
    std::string_view from,
    std::string_view to) {
  for (int64_t i : tensors.numbers(
           fmt::format("model.layers.{{}}.{}.input_linear.weight", from))) {
    std::string layer = fmt::format("model.layers.{}.", i);
    std::string old = fmt::format("{}{}.", layer, from);
    std::string now = fmt::format("{}{}.", layer, to);
    tensors.split_evenly(
        old + "input_linear.weight",
        -2,
        {now + "gate_proj.weight", now + "up_proj.weight"});
    tensors.rename(old + "output_linear.weight", now + "down_proj.weight");
  }
}

void rewrite(hub::TensorRewrite& tensors) {
  turn_convolutions(tensors, "conv1d.weight");
  if (expert_count(JsonView(tensors.config(), "config.json")) > 0) {
    split_network(tensors, "block_sparse_moe", "block_sparse_moe.switch_mlp");
    split_network(tensors, "shared_mlp", "shared_mlp");
  } else {
    split_network(tensors, "shared_mlp", "mlp");
  }
}

constexpr std::string_view kCheckpoints[] = {
    "ibm-granite/granite-4.0-h-micro",
    "ibm-granite/granite-4.0-h-tiny",
    "ibm-granite/granite-4.0-h-small",
};

constexpr std::string_view kTinyConfig = R"({
  "model_type": "granitemoehybrid", "vocab_size": 96, "hidden_size": 64,
  "intermediate_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4,
  "num_key_value_heads": 2, "rms_norm_eps": 1e-05, "attention_bias": false,
  "max_position_embeddings": 512, "embedding_multiplier": 12.0,
  "attention_multiplier": 0.0625, "logits_scaling": 8.0,
  "residual_multiplier": 0.22, "position_embedding_type": "nope",
  "layer_types": ["mamba", "attention", "mamba"], "num_local_experts": 4,
  "num_experts_per_tok": 2, "shared_intermediate_size": 48,
  "mamba_n_heads": 8, "mamba_d_head": 16, "mamba_d_state": 16,
  "mamba_n_groups": 1, "mamba_d_conv": 4, "mamba_conv_bias": true,
  "mamba_proj_bias": false, "tie_word_embeddings": true
})";

}  // namespace

constinit const ModelInfo kInfo = {
    .model_type = "granitemoehybrid",
    .aliases = {},
    .make = make,
    .tiny_config = kTinyConfig,
    .notes = "Granite 4",
    .features = "state-space layers, few attention layers, experts",
    .checkpoints = kCheckpoints,
    .rewrite = rewrite,
};

}  // namespace mlxx::models::granitemoehybrid
