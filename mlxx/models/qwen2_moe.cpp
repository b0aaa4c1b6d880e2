// Qwen 2 with experts: a softmax over all of them, and a shared expert behind
// a gate. Reference: mlx-lm 0.32.2, models/qwen2_moe.py.
#include "mlxx/models/expert_layers.h"
#include "mlxx/models/registry.h"

namespace mlxx::models::qwen2_moe {

extern const ModelInfo kInfo;

namespace {

std::unique_ptr<Model> make(const hub::Checkpoint& checkpoint) {
  DecoderConfig config(checkpoint);
  config.require_activation({"silu"});
  DecoderSpec spec = config.decoder();
  spec.tied = false;
  // The reference accepts a linear rope_scaling and does not use it.
  auto rope = config.plain_rope(
      spec.layers.front().head_size,
      config.rope_base(1e6),
      config.flag_or("rope_traditional", false));
  spec.for_each_layer([&](nn::LayerSpec& layer, int) {
    layer.qkv_bias = true;
    layer.rope = rope;
  });
  auto counts = read_expert_counts(config, "num_experts");
  nn::SparseMlpSpec mixture;
  mixture.experts = {
      .experts = counts.experts,
      .hidden_size = spec.hidden_size,
      .intermediate_size = config.size("moe_intermediate_size")};
  mixture.shared = nn::SharedExpert::gated;
  mixture.shared_size = config.size("shared_expert_intermediate_size");
  mixture.shared_name = "shared_expert";
  mixture.route = [k = counts.per_token](const nn::RouterInput& input) {
    return nn::softmax_then_top_k(
        input.logits,
        k,
        nn::TopK::first_of_negated,
        /* renormalize= */ false);
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
    "Qwen/Qwen1.5-MoE-A2.7B-Chat",
    "Qwen/Qwen2-57B-A14B-Instruct",
};

constexpr std::string_view kTinyConfig = R"({
  "model_type": "qwen2_moe", "vocab_size": 96, "hidden_size": 64,
  "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
  "num_key_value_heads": 2, "rms_norm_eps": 1e-06,
  "max_position_embeddings": 512, "rope_theta": 1000000.0,
  "tie_word_embeddings": false, "num_experts": 6, "num_experts_per_tok": 3,
  "moe_intermediate_size": 32, "shared_expert_intermediate_size": 64
})";

}  // namespace

constinit const ModelInfo kInfo = {
    .model_type = "qwen2_moe",
    .aliases = {},
    .make = make,
    .tiny_config = kTinyConfig,
    .notes = "Qwen 1.5 and 2 with experts",
    .features = "experts, softmax over all of them, gated shared expert",
    .checkpoints = kCheckpoints,
    .rewrite = rewrite,
};

}  // namespace mlxx::models::qwen2_moe
