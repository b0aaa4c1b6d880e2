// Granite 3: Llama's blocks with multipliers of embedding, attention,
// residuals and logits. Reference: mlx-lm 0.32.2, models/granite.py.
#include "mlxx/models/decoder_config.h"
#include "mlxx/models/decoder_model.h"
#include "mlxx/models/registry.h"

namespace mlxx::models::granite {

extern const ModelInfo kInfo;

namespace {

DecoderSpec read_spec(const DecoderConfig& config) {
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
    layer.mlp_bias = config.flag_or("mlp_bias", false);
    layer.rope = rope;
  });
  return spec;
}

constexpr std::string_view kCheckpoints[] = {
    "ibm-granite/granite-3.3-2b-instruct",
    "ibm-granite/granite-3.3-8b-instruct",
};

constexpr std::string_view kTinyConfig = R"({
  "model_type": "granite", "vocab_size": 96, "hidden_size": 64,
  "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
  "num_key_value_heads": 2, "rms_norm_eps": 1e-05,
  "max_position_embeddings": 512, "rope_theta": 10000.0,
  "tie_word_embeddings": true, "embedding_multiplier": 12.0,
  "logits_scaling": 8.0, "attention_multiplier": 0.0625,
  "residual_multiplier": 0.22, "attention_bias": false, "mlp_bias": false
})";

}  // namespace

constinit const ModelInfo kInfo = {
    .model_type = "granite",
    .aliases = {},
    .make = make_decoder<read_spec>,
    .tiny_config = kTinyConfig,
    .notes = "Granite 3 dense models",
    .features = "scaled embedding, residuals and logits",
    .checkpoints = kCheckpoints,
};

}  // namespace mlxx::models::granite
