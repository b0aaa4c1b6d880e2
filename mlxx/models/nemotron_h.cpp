// Nemotron-H: a pattern of Mamba2 mixers, attention without positions, plain
// networks and experts, each a layer of its own. Reference: mlx-lm 0.32.2,
// models/nemotron_h.py.
#include <nlohmann/json.hpp>

#include "mlxx/models/decoder_model.h"
#include "mlxx/models/recurrent_tensors.h"
#include "mlxx/models/registry.h"
#include "mlxx/nn/router.h"
#include "mlxx/nn/switch_mlp.h"

namespace mlxx::models::nemotron_h {

extern const ModelInfo kInfo;

namespace {

// '*' attention, 'M' Mamba2, 'E' experts, '-' network; 0 if unknown.
char block_of(std::string_view type) {
  if (type == "full_attention" || type == "attention") {
    return '*';
  }
  if (type == "linear_attention" || type == "mamba" || type == "conv") {
    return 'M';
  }
  return type == "moe" ? 'E' : type == "mlp" ? '-' : '\0';
}

// One letter per layer.
std::string read_pattern(const JsonView& config) {
  std::string pattern;
  constexpr auto kPattern = "hybrid_override_pattern";
  bool is_text = config.has(kPattern) && config.json().at(kPattern).is_string();
  if (is_text) {
    pattern = config.string(kPattern);
  } else if (config.has(kPattern)) {
    for (const auto& letter : config.strings_or_empty(kPattern)) {
      pattern += letter.size() == 1 ? letter[0] : '?';
    }
  } else {
    const char* key =
        config.has("layers_block_type") ? "layers_block_type" : "layer_types";
    for (const auto& type : config.strings_or_empty(key)) {
      char block = block_of(type);
      if (block == '\0') {
        fail(
            ErrorKind::unsupported,
            config.place(),
            "layer type '{}' is not known to nemotron_h",
            type);
      }
      pattern += block;
    }
  }
  if (pattern.empty() || pattern.size() > 4096 ||
      pattern.find_first_not_of("*ME-") != std::string::npos) {
    config.fail_at(kPattern, "describes no layers of the kinds *, M, E and -");
  }
  return pattern;
}

nn::Mamba2Spec read_mixer(const DecoderConfig& config) {
  nn::Mamba2Spec mixer;
  mixer.hidden_size = config.size("hidden_size");
  mixer.heads = config.size("mamba_num_heads");
  mixer.head_size = config.size("mamba_head_dim");
  mixer.groups = config.size("n_groups");
  mixer.state_size = config.size("ssm_state_size");
  mixer.conv_width =
      static_cast<int>(config.view().integer("conv_kernel", 2, 64));
  mixer.conv_bias = config.view().boolean("use_conv_bias");
  mixer.in_bias = config.view().boolean("mamba_proj_bias");
  mixer.out_bias = mixer.in_bias;
  std::tie(mixer.dt_lowest, mixer.dt_highest) =
      read_step_limits(config.view(), {0.0f, kNoLimit});
  mixer.norm = nn::ScanNorm::groups;
  mixer.norm_eps = config.number("layer_norm_epsilon");
  mixer.round_skip = true;
  check_mamba2(config.view(), mixer, "n_groups");
  return mixer;
}

struct ExpertsSpec {
  nn::SwitchMlpOptions experts;
  nn::GroupedSigmoidOptions routing;
  int hidden_size;
  std::optional<int> latent_size;  // width that experts work in
  std::optional<nn::LayerSpec> shared;
  bool bias;
};

ExpertsSpec read_experts(
    const DecoderConfig& config,
    const nn::LayerSpec& network) {
  const JsonView& view = config.view();
  ExpertsSpec spec;
  spec.hidden_size = network.hidden_size;
  spec.bias = network.mlp_bias;
  if (view.has("moe_latent_size")) {
    spec.latent_size = config.size("moe_latent_size");
  }
  spec.experts = {
      .experts = config.size("n_routed_experts"),
      .hidden_size = spec.latent_size.value_or(spec.hidden_size),
      .intermediate_size = config.size("moe_intermediate_size"),
      .ungated = kernels::Activation::relu_squared,
      .up_name = "fc1",
      .down_name = "fc2"};
  auto most = spec.experts.experts;
  auto groups = static_cast<int>(view.integer("n_group", 1, most));
  if (most % groups != 0) {
    view.fail_at(
        "n_group",
        fmt::format("is {}, which does not divide {} experts", groups, most));
  }
  spec.routing = {
      .top_k = static_cast<int>(view.integer("num_experts_per_tok", 1, most)),
      .groups = groups,
      .groups_kept = static_cast<int>(view.integer("topk_group", 1, groups)),
      .scale = config.number("routed_scaling_factor"),
      .renormalize = view.boolean("norm_topk_prob")};
  if (view.has("n_shared_experts")) {
    spec.shared = network;
    spec.shared->intermediate_size =
        view.has("moe_shared_expert_intermediate_size")
        ? config.size("moe_shared_expert_intermediate_size")
        : network.intermediate_size;
  }
  return spec;
}

// Experts without gates, perhaps in a narrower space, beside a shared network.
class Experts : public nn::FeedForward {
 public:
  explicit Experts(const ExpertsSpec& spec)
      : routing_(spec.routing),
        gate_(spec.hidden_size, spec.experts.experts, false),
        correction_({spec.experts.experts}, Parameter::Kind::tensor),
        experts_(spec.experts) {
    if (spec.latent_size) {
      into_latent_.emplace(spec.hidden_size, *spec.latent_size, spec.bias);
      from_latent_.emplace(*spec.latent_size, spec.hidden_size, spec.bias);
    }
    if (spec.shared) {
      shared_.emplace(*spec.shared);
    }
  }

  mx::array operator()(const mx::array& x) const override {
    auto routing = nn::grouped_sigmoid(gate_(x), correction_.value(), routing_);
    mx::array y = experts_.mixture(
        into_latent_ ? (*into_latent_)(x) : x,
        routing.experts,
        routing.weights);
    if (from_latent_) {
      y = (*from_latent_)(y);
    }
    return shared_ ? mx::add(y, (*shared_)(x)) : y;
  }

  void visit(const std::string& prefix, const ParameterVisitor& visitor)
      override {
    gate_.visit(prefix + ".gate", visitor);
    visitor(prefix + ".gate.e_score_correction_bias", correction_);
    experts_.visit(prefix + ".switch_mlp", visitor);
    if (into_latent_) {
      into_latent_->visit(prefix + ".fc1_latent_proj", visitor);
      from_latent_->visit(prefix + ".fc2_latent_proj", visitor);
    }
    if (shared_) {
      shared_->visit(prefix + ".shared_experts", visitor);
    }
  }

  void use(const kernels::Selection& selection) override {
    experts_.use(selection);
    if (shared_) {
      shared_->use(selection);
    }
  }

 private:
  nn::GroupedSigmoidOptions routing_;
  nn::Linear gate_;
  Parameter correction_;  // [experts]
  nn::SwitchMlp experts_;
  std::optional<nn::Linear> into_latent_;
  std::optional<nn::Linear> from_latent_;
  std::optional<nn::Mlp> shared_;
};

DecoderSpec read_spec(const DecoderConfig& config) {
  DecoderSpec spec = config.decoder({.norm_eps = "layer_norm_epsilon"});
  bool bias = config.view().boolean("attention_bias");
  spec.for_each_layer([&](nn::LayerSpec& layer, int) {
    layer.qkv_bias = bias;
    layer.output_bias = bias;
    layer.mlp_bias = config.view().boolean("mlp_bias");
    layer.activation = kernels::Activation::relu_squared;
    layer.names.gate = "";
  });
  spec.tied = false;
  spec.embedding = "backbone.embeddings";
  spec.layer_list = "backbone.layers";
  spec.norm = "backbone.norm_f";
  return spec;
}

nn::MixerLayerParts make_parts(
    char block,
    const DecoderConfig& config,
    const nn::LayerSpec& layer) {
  nn::MixerLayerParts parts;
  parts.mixer_name = parts.network_name = "mixer";
  parts.mixer_norm = parts.network_norm = "norm";
  if (block == 'M') {
    parts.mixer = std::make_unique<nn::Mamba2Mixer>(read_mixer(config));
  } else if (block == '*') {
    parts.mixer = std::make_unique<nn::AttentionMixer>(layer);
  } else if (block == '-') {
    parts.network = std::make_unique<nn::MlpNetwork>(layer);
  } else {
    parts.network = std::make_unique<Experts>(read_experts(config, layer));
  }
  return parts;
}

std::unique_ptr<Model> make(const hub::Checkpoint& checkpoint) {
  // The number of layers is that of the pattern, whatever the config says.
  Json completed = checkpoint.config();
  std::string pattern = read_pattern(JsonView(completed, "config.json"));
  completed["num_hidden_layers"] = pattern.size();
  DecoderConfig config(checkpoint, JsonView(completed, "config.json"));
  DecoderSpec spec = read_spec(config);
  DecoderLayers layers;
  for (size_t i = 0; i < pattern.size(); ++i) {
    layers.push_back(std::make_unique<nn::MixerLayer>(
        nn::MixerLayerOptions{spec.hidden_size, spec.final_norm},
        make_parts(pattern[i], config, spec.layers[i])));
  }
  return std::make_unique<DecoderModel>(std::move(spec), std::move(layers));
}

void rewrite(hub::TensorRewrite& tensors) {
  tensors.drop_prefix("mtp.", "prediction of several tokens");
  turn_convolutions(tensors, "conv1d.weight");
  auto count = JsonView(tensors.config(), "config.json")
                   .integer_or("n_routed_experts", 0, 0, 65536);
  for (auto [from, to] : {std::pair{"up_proj", "fc1"}, {"down_proj", "fc2"}}) {
    tensors.stack_experts(
        fmt::format("backbone.layers.{{}}.mixer.experts.{{e}}.{}.weight", from),
        count,
        fmt::format("backbone.layers.{{}}.mixer.switch_mlp.{}.weight", to));
  }
}

constexpr std::string_view kCheckpoints[] = {
    "nvidia/Nemotron-H-8B-Base-8K",
    "nvidia/NVIDIA-Nemotron-Nano-9B-v2",
    "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16",
};

constexpr std::string_view kTinyConfig = R"({
  "model_type": "nemotron_h", "vocab_size": 96, "hidden_size": 64,
  "intermediate_size": 96, "num_attention_heads": 4,
  "num_key_value_heads": 2, "head_dim": 16, "attention_bias": false,
  "max_position_embeddings": 512, "layer_norm_epsilon": 1e-05,
  "hybrid_override_pattern": "M-*E", "mamba_num_heads": 8,
  "mamba_head_dim": 16, "mamba_proj_bias": false, "ssm_state_size": 16,
  "conv_kernel": 4, "n_groups": 2, "mlp_bias": false, "use_bias": false,
  "use_conv_bias": true, "moe_intermediate_size": 32,
  "moe_shared_expert_intermediate_size": 48, "n_group": 1,
  "n_routed_experts": 4, "n_shared_experts": 1, "topk_group": 1,
  "num_experts_per_tok": 2, "norm_topk_prob": true,
  "routed_scaling_factor": 2.5
})";

}  // namespace

constinit const ModelInfo kInfo = {
    .model_type = "nemotron_h",
    .aliases = {},
    .make = make,
    .tiny_config = kTinyConfig,
    .notes = "Nemotron-H, Nemotron Nano 2 and 3",
    .features =
        "state-space, attention, network and expert layers in a pattern",
    .checkpoints = kCheckpoints,
    .rewrite = rewrite,
};

}  // namespace mlxx::models::nemotron_h
