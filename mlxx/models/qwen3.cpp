// Qwen3: Llama's blocks with a norm of each head's queries and keys.
// Reference: mlx-lm 0.32.2, models/qwen3.py.
#include "mlxx/models/decoder_config.h"
#include "mlxx/models/decoder_model.h"
#include "mlxx/models/registry.h"

namespace mlxx::models::qwen3 {

extern const ModelInfo kInfo;

namespace {

DecoderSpec read_spec(const DecoderConfig& config) {
  config.require_activation({"silu"});
  DecoderSpec spec = config.decoder();
  auto rope = config.rope(spec.layers.front().head_size, 1000000);
  spec.for_each_layer([&](nn::LayerSpec& layer, int) {
    layer.qk_norm = nn::QkNorm::per_head;
    layer.rope = rope;
  });
  return spec;
}

constexpr std::string_view kCheckpoints[] = {
    "Qwen/Qwen3-0.6B",
    "Qwen/Qwen3-8B",
    "Qwen/Qwen3-32B",
};

constexpr std::string_view kTinyConfig = R"({
  "model_type": "qwen3", "vocab_size": 96, "hidden_size": 64,
  "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
  "num_key_value_heads": 2, "rms_norm_eps": 1e-05,
  "max_position_embeddings": 512, "rope_theta": 10000.0,
  "tie_word_embeddings": true, "head_dim": 16
})";

}  // namespace

constinit const ModelInfo kInfo = {
    .model_type = "qwen3",
    .aliases = {},
    .make = make_decoder<read_spec>,
    .tiny_config = kTinyConfig,
    .notes = "Qwen3 dense models",
    .features = "norms of queries and keys",
    .checkpoints = kCheckpoints,
};

}  // namespace mlxx::models::qwen3
