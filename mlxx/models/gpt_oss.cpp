// gpt-oss: experts with biases and a clamped gate, attention with sinks,
// windows in every other layer. Reference: mlx-lm 0.32.2, models/gpt_oss.py.
#include <cmath>

#include "mlxx/models/expert_layers.h"
#include "mlxx/models/registry.h"

namespace mlxx::models::gpt_oss {

extern const ModelInfo kInfo;

namespace {

std::unique_ptr<Model> make(const hub::Checkpoint& checkpoint) {
  DecoderConfig config(checkpoint);
  config.require_activation({"silu"});
  DecoderSpec spec = config.decoder();
  spec.tied = false;
  if (config.view().has("layer_types")) {
    config.read_windows(spec);
  } else {
    spec.for_each_layer([&](nn::LayerSpec& layer, int i) {
      layer.window = i % 2 == 0 ? config.size("sliding_window") : 0;
    });
  }
  int head_size = spec.layers.front().head_size;
  auto rope = config.rope(head_size, 150000);
  spec.for_each_layer([&](nn::LayerSpec& layer, int) {
    layer.attention_scale = static_cast<float>(1 / std::sqrt(head_size));
    layer.qkv_bias = true;
    layer.output_bias = true;
    layer.sinks = true;
    layer.rope = rope;
  });
  auto counts = read_expert_counts(config, "num_local_experts");
  nn::SparseMlpSpec mixture;
  mixture.experts = {
      .experts = counts.experts,
      .hidden_size = spec.hidden_size,
      .intermediate_size = spec.layers.front().intermediate_size,
      .bias = true,
      .activation = nn::clamped_gated};
  mixture.router_bias = true;
  mixture.router_name = "router";
  mixture.experts_name = "experts";
  mixture.route = [k = counts.per_token](const nn::RouterInput& input) {
    return nn::top_k_then_softmax(
        input.logits,
        k,
        nn::TopK::last,
        nn::ChosenSoftmax::precise);
  };
  auto layers = layers_with_networks(spec, [&](int) {
    return std::make_unique<nn::SparseMlp>(mixture);
  });
  return std::make_unique<DecoderModel>(std::move(spec), std::move(layers));
}

// Published files have gate and up in turns in one tensor: in blocks of mxfp4
// [experts, rows, blocks, 16 bytes], or, retrained in half precision,
// transposed.
void rewrite_layer(hub::TensorRewrite& tensors, const std::string& start) {
  const hub::Quantization mxfp4 = {32, 4, "mxfp4"};
  std::string both = start + "gate_up_proj";
  std::string down = start + "down_proj";
  std::string gate_weight = start + "gate_proj.weight";
  std::string up_weight = start + "up_proj.weight";
  if (tensors.has(both + "_blocks")) {
    tensors.pack(both + "_blocks", both + "_scales", mxfp4, both + ".weight");
    tensors.pack(down + "_blocks", down + "_scales", mxfp4, down + ".weight");
    tensors.split_interleaved(both + ".weight", 1, {gate_weight, up_weight});
  } else if (tensors.has(both)) {
    tensors.transpose(both, {0, 2, 1});
    tensors.split_interleaved(both, 1, {gate_weight, up_weight});
    tensors.transpose(down, {0, 2, 1});
    tensors.rename(down, down + ".weight");
  }
  if (tensors.has(both + "_bias")) {
    tensors.split_interleaved(
        both + "_bias",
        1,
        {start + "gate_proj.bias", start + "up_proj.bias"});
    tensors.rename(down + "_bias", down + ".bias");
  }
}

void rewrite(hub::TensorRewrite& tensors) {
  for (int64_t layer :
       tensors.numbers("model.layers.{}.mlp.experts.gate_up_proj_bias")) {
    rewrite_layer(tensors, fmt::format("model.layers.{}.mlp.experts.", layer));
  }
}

constexpr std::string_view kCheckpoints[] = {
    "openai/gpt-oss-20b",
    "openai/gpt-oss-120b",
};

constexpr std::string_view kTinyConfig = R"({
  "model_type": "gpt_oss", "vocab_size": 96, "hidden_size": 64,
  "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
  "num_key_value_heads": 2, "head_dim": 32, "rms_norm_eps": 1e-05,
  "max_position_embeddings": 512, "rope_theta": 150000.0,
  "rope_scaling": {"rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0,
    "beta_slow": 1.0, "truncate": false,
    "original_max_position_embeddings": 64},
  "tie_word_embeddings": false, "num_local_experts": 4,
  "num_experts_per_tok": 2, "sliding_window": 16
})";

}  // namespace

constinit const ModelInfo kInfo = {
    .model_type = "gpt_oss",
    .aliases = {},
    .make = make,
    .tiny_config = kTinyConfig,
    .notes = "gpt-oss",
    .features = "experts in mxfp4, attention sinks, sliding windows",
    .checkpoints = kCheckpoints,
    .rewrite = rewrite,
};

}  // namespace mlxx::models::gpt_oss
