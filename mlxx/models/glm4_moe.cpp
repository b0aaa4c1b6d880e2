// GLM-4.5 and later: dense layers, then experts in DeepSeek-V3's way; half of a
// head rotated. Reference: mlx-lm 0.32.2, models/glm4_moe.py.
#include "mlxx/models/expert_layers.h"
#include "mlxx/models/registry.h"

namespace mlxx::models::glm4_moe {

extern const ModelInfo kInfo;

namespace {

std::unique_ptr<Model> make(const hub::Checkpoint& checkpoint) {
  DecoderConfig config(checkpoint);
  config.require_activation({"silu"});
  DecoderSpec spec = config.decoder();
  spec.tied = false;
  // The reference ignores rope_scaling.
  auto rope = config.plain_rope(
      config.rotated(spec.layers.front().head_size, 0.5),
      config.rope_base(10000));
  spec.for_each_layer([&](nn::LayerSpec& layer, int) {
    layer.qkv_bias = config.flag_or("attention_bias", false);
    layer.qk_norm = config.flag_or("use_qk_norm", false) ? nn::QkNorm::per_head
                                                         : nn::QkNorm::none;
    layer.rope = rope;
  });
  auto dense =
      config.view().integer_or("first_k_dense_replace", 0, 0, INT32_MAX);
  nn::SparseMlpSpec mixture = read_grouped_experts(config);
  auto layers = layers_with_networks(
      spec,
      [&](int layer) -> std::unique_ptr<nn::FeedForward> {
        return layer >= dense ? std::make_unique<nn::SparseMlp>(mixture)
                              : nullptr;
      });
  return std::make_unique<DecoderModel>(std::move(spec), std::move(layers));
}

void rewrite(hub::TensorRewrite& tensors) {
  drop_further_layers(tensors);
  stack_experts(
      tensors,
      "model.layers.{}.mlp.experts",
      "model.layers.{}.mlp.switch_mlp",
      "n_routed_experts",
      ExpertNames::spoken);
}

constexpr std::string_view kCheckpoints[] = {
    "zai-org/GLM-4.5-Air",
    "zai-org/GLM-4.6",
};

constexpr std::string_view kTinyConfig = R"({
  "model_type": "glm4_moe", "vocab_size": 96, "hidden_size": 64,
  "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4,
  "num_key_value_heads": 2, "head_dim": 32, "rms_norm_eps": 1e-05,
  "max_position_embeddings": 512, "rope_theta": 1000000.0,
  "partial_rotary_factor": 0.5, "use_qk_norm": true, "attention_bias": true,
  "tie_word_embeddings": false, "moe_intermediate_size": 32,
  "n_routed_experts": 8, "n_shared_experts": 1, "num_experts_per_tok": 3,
  "n_group": 2, "topk_group": 1, "routed_scaling_factor": 1.5,
  "norm_topk_prob": true, "first_k_dense_replace": 1
})";

}  // namespace

constinit const ModelInfo kInfo = {
    .model_type = "glm4_moe",
    .aliases = {},
    .make = make,
    .tiny_config = kTinyConfig,
    .notes = "GLM-4.5 and 4.6",
    .features = "experts in groups with a shared one, partial rope",
    .checkpoints = kCheckpoints,
    .rewrite = rewrite,
};

}  // namespace mlxx::models::glm4_moe
