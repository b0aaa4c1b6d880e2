// OLMoE: a softmax over all experts; queries and keys normed over their whole
// width. Reference: mlx-lm 0.32.2, models/olmoe.py.
#include "mlxx/models/expert_layers.h"
#include "mlxx/models/registry.h"

namespace mlxx::models::olmoe {

extern const ModelInfo kInfo;

namespace {

std::unique_ptr<Model> make(const hub::Checkpoint& checkpoint) {
  DecoderConfig config(checkpoint);
  config.require_activation({"silu"});
  DecoderSpec spec = config.decoder();
  auto rope = config.rope(spec.layers.front().head_size);
  bool bias = config.flag_or("attention_bias", false);
  spec.for_each_layer([&](nn::LayerSpec& layer, int) {
    layer.qkv_bias = bias;
    layer.output_bias = bias;
    layer.qk_norm = nn::QkNorm::whole_width;
    layer.rope = rope;
  });
  auto counts = read_expert_counts(config, "num_experts");
  nn::SparseMlpSpec mixture;
  mixture.experts = {
      .experts = counts.experts,
      .hidden_size = spec.hidden_size,
      .intermediate_size = spec.layers.front().intermediate_size,
      .bias = config.flag_or("mlp_bias", false)};
  mixture.flatten = true;
  mixture.route = [k = counts.per_token,
                   renormalize = config.flag_or("norm_topk_prob", false)](
                      const nn::RouterInput& input) {
    return nn::softmax_then_top_k(
        input.logits,
        k,
        nn::TopK::first_of_negated,
        renormalize);
  };
  auto layers = layers_with_networks(spec, [&](int) {
    return std::make_unique<nn::SparseMlp>(mixture);
  });
  return std::make_unique<DecoderModel>(std::move(spec), std::move(layers));
}

void rewrite(hub::TensorRewrite& tensors) {
  stack_experts(
      tensors,
      "model.layers.{}.mlp.experts",
      "model.layers.{}.mlp.switch_mlp",
      "num_experts",
      ExpertNames::spoken);
}

constexpr std::string_view kCheckpoints[] = {
    "allenai/OLMoE-1B-7B-0924-Instruct",
    "allenai/OLMoE-1B-7B-0125-Instruct",
};

constexpr std::string_view kTinyConfig = R"({
  "model_type": "olmoe", "vocab_size": 96, "hidden_size": 64,
  "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
  "num_key_value_heads": 4, "rms_norm_eps": 1e-05,
  "max_position_embeddings": 512, "rope_theta": 10000.0,
  "tie_word_embeddings": false, "num_experts": 8, "num_experts_per_tok": 3,
  "norm_topk_prob": false
})";

}  // namespace

constinit const ModelInfo kInfo = {
    .model_type = "olmoe",
    .aliases = {},
    .make = make,
    .tiny_config = kTinyConfig,
    .notes = "OLMoE",
    .features = "experts, softmax over all of them, qk-norm over the width",
    .checkpoints = kCheckpoints,
    .rewrite = rewrite,
};

}  // namespace mlxx::models::olmoe
