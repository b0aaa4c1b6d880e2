// MiniCPM: Llama's blocks with scaled embedding, residuals and head input.
// Reference: mlx-lm 0.32.2, models/minicpm.py.
#include <cmath>
#include "mlxx/models/decoder_config.h"
#include "mlxx/models/decoder_model.h"
#include "mlxx/models/registry.h"

namespace mlxx::models::minicpm {

extern const ModelInfo kInfo;

namespace {

DecoderSpec read_spec(const DecoderConfig& config) {
  config.require_activation({"silu"});
  DecoderSpec spec = config.decoder();
  spec.embedding_multiplier = config.number("scale_emb");
  // The reference divides only before a head of its own.
  if (!spec.tied) {
    spec.head_input_divisor = static_cast<float>(
        double{1} * spec.hidden_size / config.size("dim_model_base"));
  }
  auto rope = config.rope(spec.layers.front().head_size, 1000000);
  auto depth = static_cast<double>(spec.layers.size());
  spec.for_each_layer([&](nn::LayerSpec& layer, int) {
    layer.residual_multiplier = static_cast<float>(
        config.view().number("scale_depth") / std::sqrt(depth));
    layer.rope = rope;
  });
  return spec;
}

// Published files have no head, whose place the embedding takes.
void rewrite(hub::TensorRewrite& tensors) {
  constexpr auto kHead = "lm_head.weight";
  bool tied = JsonView(tensors.config(), "config.json")
                  .boolean_or("tie_word_embeddings", false);
  if (tied) {
    tensors.drop_tied_head(kHead);
  }
}

constexpr std::string_view kCheckpoints[] = {
    "openbmb/MiniCPM-2B-sft-bf16",
};

constexpr std::string_view kTinyConfig = R"({
  "model_type": "minicpm", "vocab_size": 96, "hidden_size": 64,
  "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
  "num_key_value_heads": 2, "rms_norm_eps": 1e-05,
  "max_position_embeddings": 512, "rope_theta": 10000.0,
  "tie_word_embeddings": false, "scale_emb": 12, "scale_depth": 1.4,
  "dim_model_base": 32
})";

}  // namespace

constinit const ModelInfo kInfo = {
    .model_type = "minicpm",
    .aliases = {},
    .make = make_decoder<read_spec>,
    .tiny_config = kTinyConfig,
    .notes = "MiniCPM and MiniCPM2",
    .features = "scaled embedding, residuals and head",
    .checkpoints = kCheckpoints,
    .rewrite = rewrite,
};

}  // namespace mlxx::models::minicpm
