// Gemma: Llama's blocks with GELU networks, norms of weight 1 + w and a
// scaled, tied embedding. Reference: mlx-lm 0.32.2, models/gemma.py.
#include <cmath>
#include "mlxx/models/decoder_config.h"
#include "mlxx/models/decoder_model.h"
#include "mlxx/models/registry.h"

namespace mlxx::models::gemma {

extern const ModelInfo kInfo;

namespace {

DecoderSpec read_spec(const DecoderConfig& config) {
  DecoderSpec spec = config.decoder();
  spec.tied = true;
  spec.embedding_multiplier =
      static_cast<float>(std::sqrt(double{1} * spec.hidden_size));
  spec.final_norm.kind = nn::NormSpec::Kind::rms_plus_one;
  int head_size = spec.layers.front().head_size;
  auto rope = config.plain_rope(head_size, config.rope_base(10000));
  spec.for_each_layer([&](nn::LayerSpec& layer, int) {
    layer.norm.kind = nn::NormSpec::Kind::rms_plus_one;
    layer.activation = kernels::Activation::gelu;
    layer.rope = rope;
  });
  return spec;
}

constexpr std::string_view kCheckpoints[] = {
    "google/gemma-2b-it",
    "google/gemma-7b-it",
};

constexpr std::string_view kTinyConfig = R"({
  "model_type": "gemma", "vocab_size": 96, "hidden_size": 64,
  "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
  "num_key_value_heads": 2, "rms_norm_eps": 1e-05,
  "max_position_embeddings": 512, "rope_theta": 10000.0,
  "tie_word_embeddings": true, "head_dim": 16
})";

}  // namespace

constinit const ModelInfo kInfo = {
    .model_type = "gemma",
    .aliases = {},
    .make = make_decoder<read_spec>,
    .tiny_config = kTinyConfig,
    .notes = "Gemma 1",
    .features = "GELU, norms of weight 1 + w",
    .checkpoints = kCheckpoints,
};

}  // namespace mlxx::models::gemma
