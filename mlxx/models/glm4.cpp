// GLM-4: four norms a block, half of a head rotated in pairs, gate and up in
// one matrix. Reference: mlx-lm 0.32.2, models/glm4.py.
#include "mlxx/models/decoder_config.h"
#include "mlxx/models/decoder_model.h"
#include "mlxx/models/fused_tensors.h"
#include "mlxx/models/registry.h"

namespace mlxx::models::glm4 {

extern const ModelInfo kInfo;

namespace {

DecoderSpec read_spec(const DecoderConfig& config) {
  config.require_activation({"silu"});
  DecoderSpec spec = config.decoder();
  spec.tied = false;
  int dims = config.rotated(spec.layers.front().head_size, 0.5);
  auto rope = config.plain_rope(
      dims,
      config.rope_base(10000),
      config.flag_or("rope_traditional", true));
  spec.for_each_layer([&](nn::LayerSpec& layer, int) {
    layer.qkv_bias = config.flag_or("attention_bias", false);
    layer.names.after_attention = "post_self_attn_layernorm";
    layer.names.after_mlp = "post_mlp_layernorm";
    layer.rope = rope;
  });
  return spec;
}

void rewrite(hub::TensorRewrite& tensors) {
  split_gate_up(tensors);
}

constexpr std::string_view kCheckpoints[] = {
    "zai-org/GLM-4-9B-0414",
    "zai-org/GLM-Z1-32B-0414",
};

constexpr std::string_view kTinyConfig = R"({
  "model_type": "glm4", "vocab_size": 96, "hidden_size": 64,
  "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
  "num_key_value_heads": 2, "rms_norm_eps": 1e-05,
  "max_position_embeddings": 512, "rope_theta": 10000.0,
  "tie_word_embeddings": false, "head_dim": 16, "attention_bias": true,
  "partial_rotary_factor": 0.5
})";

}  // namespace

constinit const ModelInfo kInfo = {
    .model_type = "glm4",
    .aliases = {},
    .make = make_decoder<read_spec>,
    .tiny_config = kTinyConfig,
    .notes = "GLM-4 (0414)",
    .features = "partial rope, four norms a block",
    .checkpoints = kCheckpoints,
    .rewrite = rewrite,
};

}  // namespace mlxx::models::glm4
