// ERNIE 4.5, dense: Llama's blocks, rotated in neighbouring pairs, with one
// flag for the biases of all projections. Reference: mlx-lm 0.32.2,
// models/ernie4_5.py; scaled rope, which it ignores, as in transformers.
#include "mlxx/models/decoder_config.h"
#include "mlxx/models/decoder_model.h"
#include "mlxx/models/registry.h"

namespace mlxx::models::ernie4_5 {

extern const ModelInfo kInfo;

namespace {

DecoderSpec read_spec(const DecoderConfig& config) {
  config.require_activation({"silu"});
  DecoderSpec spec = config.decoder();
  auto rope = config.rope(spec.layers.front().head_size, 500000, true);
  const bool bias = config.flag_or("use_bias", false);
  spec.for_each_layer([&](nn::LayerSpec& layer, int) {
    layer.qkv_bias = bias;
    layer.output_bias = bias;
    layer.mlp_bias = bias;
    layer.rope = rope;
  });
  return spec;
}

constexpr std::string_view kCheckpoints[] = {
    "baidu/ERNIE-4.5-0.3B-PT",
    "baidu/ERNIE-4.5-0.3B-Base-PT",
};

constexpr std::string_view kTinyConfig = R"({
  "model_type": "ernie4_5", "vocab_size": 96, "hidden_size": 64,
  "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
  "num_key_value_heads": 2, "rms_norm_eps": 1e-05,
  "max_position_embeddings": 512, "rope_theta": 10000.0,
  "tie_word_embeddings": true, "head_dim": 32, "use_bias": true
})";

}  // namespace

constinit const ModelInfo kInfo = {
    .model_type = "ernie4_5",
    .aliases = {},
    .make = make_decoder<read_spec>,
    .tiny_config = kTinyConfig,
    .notes = "Baidu ERNIE 4.5 dense models",
    .features = "rope of neighbouring pairs, biases everywhere or nowhere",
    .checkpoints = kCheckpoints,
};

}  // namespace mlxx::models::ernie4_5
