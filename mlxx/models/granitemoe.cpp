// Granite 3 with experts: Granite's multipliers, a softmax in float32 over the
// chosen logits. Reference: mlx-lm 0.32.2, models/granitemoe.py.
#include "mlxx/models/expert_layers.h"
#include "mlxx/models/registry.h"

namespace mlxx::models::granitemoe {

extern const ModelInfo kInfo;

namespace {

std::unique_ptr<Model> make(const hub::Checkpoint& checkpoint) {
  DecoderConfig config(checkpoint);
  config.require_activation({"silu"});
  DecoderSpec spec = config.decoder();
  spec.embedding_multiplier = config.number("embedding_multiplier");
  spec.logits_divisor = config.number("logits_scaling");
  auto rope = config.rope(spec.layers.front().head_size);
  spec.for_each_layer([&](nn::LayerSpec& layer, int) {
    layer.attention_scale = config.number("attention_multiplier");
    layer.residual_multiplier = config.number("residual_multiplier");
    layer.qkv_bias = config.flag_or("attention_bias", false);
    layer.output_bias = layer.qkv_bias;
    layer.rope = rope;
    layer.names.mlp = "block_sparse_moe";
  });
  auto counts = read_expert_counts(config, "num_local_experts");
  nn::SparseMlpSpec mixture;
  mixture.experts = {
      .experts = counts.experts,
      .hidden_size = spec.hidden_size,
      .intermediate_size = spec.layers.front().intermediate_size};
  mixture.router_name = "router.layer";
  mixture.route = [k = counts.per_token](const nn::RouterInput& input) {
    return nn::top_k_then_softmax(
        input.logits,
        k,
        nn::TopK::last,
        nn::ChosenSoftmax::float32);
  };
  auto layers = layers_with_networks(spec, [&](int) {
    return std::make_unique<nn::SparseMlp>(mixture);
  });
  return std::make_unique<DecoderModel>(std::move(spec), std::move(layers));
}

// Published files have all experts in one tensor, gate above up.
void rewrite(hub::TensorRewrite& tensors) {
  for (int64_t layer : tensors.numbers(
           "model.layers.{}.block_sparse_moe.input_linear.weight")) {
    std::string start = fmt::format("model.layers.{}.block_sparse_moe.", layer);
    tensors.split_evenly(
        start + "input_linear.weight",
        1,
        {start + "switch_mlp.gate_proj.weight",
         start + "switch_mlp.up_proj.weight"});
    tensors.rename(
        start + "output_linear.weight",
        start + "switch_mlp.down_proj.weight");
  }
}

constexpr std::string_view kCheckpoints[] = {
    "ibm-granite/granite-3.1-1b-a400m-instruct",
    "ibm-granite/granite-3.1-3b-a800m-instruct",
};

constexpr std::string_view kTinyConfig = R"({
  "model_type": "granitemoe", "vocab_size": 96, "hidden_size": 64,
  "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
  "num_key_value_heads": 2, "rms_norm_eps": 1e-06,
  "max_position_embeddings": 512, "rope_theta": 10000.0,
  "tie_word_embeddings": true, "embedding_multiplier": 12.0,
  "logits_scaling": 6.0, "attention_multiplier": 0.0625,
  "residual_multiplier": 0.22, "attention_bias": false,
  "num_local_experts": 8, "num_experts_per_tok": 3
})";

}  // namespace

constinit const ModelInfo kInfo = {
    .model_type = "granitemoe",
    .aliases = {},
    .make = make,
    .tiny_config = kTinyConfig,
    .notes = "Granite 3 with experts",
    .features = "experts, softmax over the chosen ones, scaled residuals",
    .checkpoints = kCheckpoints,
    .rewrite = rewrite,
};

}  // namespace mlxx::models::granitemoe
