// Seed-OSS: Llama's blocks, biases apart for the projections in and out of
// attention. Reference: mlx-lm 0.32.2, models/seed_oss.py.
#include "mlxx/models/decoder_config.h"
#include "mlxx/models/decoder_model.h"
#include "mlxx/models/registry.h"

namespace mlxx::models::seed_oss {

extern const ModelInfo kInfo;

namespace {

DecoderSpec read_spec(const DecoderConfig& config) {
  config.require_activation({"silu"});
  DecoderSpec spec = config.decoder();
  auto rope = config.rope(spec.layers.front().head_size);
  spec.for_each_layer([&](nn::LayerSpec& layer, int) {
    layer.qkv_bias = config.flag_or("attention_bias", false);
    layer.output_bias = config.flag_or("attention_out_bias", false);
    layer.mlp_bias = config.flag_or("mlp_bias", false);
    layer.rope = rope;
  });
  return spec;
}

constexpr std::string_view kCheckpoints[] = {
    "ByteDance-Seed/Seed-OSS-36B-Instruct",
};

constexpr std::string_view kTinyConfig = R"({
  "model_type": "seed_oss", "vocab_size": 96, "hidden_size": 64,
  "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
  "num_key_value_heads": 2, "rms_norm_eps": 1e-05,
  "max_position_embeddings": 512, "rope_theta": 10000.0,
  "tie_word_embeddings": false, "head_dim": 16, "attention_bias": true
})";

}  // namespace

constinit const ModelInfo kInfo = {
    .model_type = "seed_oss",
    .aliases = {},
    .make = make_decoder<read_spec>,
    .tiny_config = kTinyConfig,
    .notes = "ByteDance Seed-OSS",
    .features = "biases of queries, keys and values",
    .checkpoints = kCheckpoints,
};

}  // namespace mlxx::models::seed_oss
