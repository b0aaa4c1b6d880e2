// Qwen2 and Qwen2.5: Llama's blocks with biases of queries, keys and values.
// Reference: mlx-lm 0.32.2, models/qwen2.py.
#include "mlxx/models/decoder_config.h"
#include "mlxx/models/decoder_model.h"
#include "mlxx/models/registry.h"

namespace mlxx::models::qwen2 {

extern const ModelInfo kInfo;

namespace {

DecoderSpec read_spec(const DecoderConfig& config) {
  config.require_activation({"silu"});
  DecoderSpec spec = config.decoder();
  auto rope = config.rope(spec.layers.front().head_size, 1000000);
  spec.for_each_layer([&](nn::LayerSpec& layer, int) {
    layer.qkv_bias = true;
    layer.rope = rope;
  });
  return spec;
}

constexpr std::string_view kCheckpoints[] = {
    "Qwen/Qwen2.5-0.5B-Instruct",
    "Qwen/Qwen2.5-7B-Instruct",
    "Qwen/Qwen2.5-Coder-32B-Instruct",
};

constexpr std::string_view kTinyConfig = R"({
  "model_type": "qwen2", "vocab_size": 96, "hidden_size": 64,
  "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
  "num_key_value_heads": 2, "rms_norm_eps": 1e-05,
  "max_position_embeddings": 512, "rope_theta": 10000.0,
  "tie_word_embeddings": true
})";

}  // namespace

constinit const ModelInfo kInfo = {
    .model_type = "qwen2",
    .aliases = {},
    .make = make_decoder<read_spec>,
    .tiny_config = kTinyConfig,
    .notes = "Qwen2, Qwen2.5 and models of that form",
    .features = "biases of queries, keys and values",
    .checkpoints = kCheckpoints,
};

}  // namespace mlxx::models::qwen2
