// Gemma 2: four norms a block, scores and logits capped by tanh. Reference:
// mlx-lm 0.32.2, models/gemma2.py.
#include <cmath>
#include "mlxx/models/decoder_config.h"
#include "mlxx/models/decoder_model.h"
#include "mlxx/models/registry.h"

namespace mlxx::models::gemma2 {

extern const ModelInfo kInfo;

namespace {

DecoderSpec read_spec(const DecoderConfig& config) {
  DecoderSpec spec = config.decoder();
  spec.tied = true;
  spec.embedding_multiplier =
      static_cast<float>(std::sqrt(double{1} * spec.hidden_size));
  spec.final_softcap = config.number_or("final_logit_softcapping", 30);
  spec.final_norm.kind = nn::NormSpec::Kind::rms_plus_one;
  // The window of the published configs has no effect, as in the reference.
  int head_size = spec.layers.front().head_size;
  auto rope = config.plain_rope(head_size, config.rope_base(10000));
  double scalar = config.view().number_or("query_pre_attn_scalar", 144);
  spec.for_each_layer([&](nn::LayerSpec& layer, int) {
    layer.norm.kind = nn::NormSpec::Kind::rms_plus_one;
    layer.activation = kernels::Activation::gelu_tanh;
    layer.attention_scale = static_cast<float>(1 / std::sqrt(scalar));
    layer.softcap = config.number_or("attn_logit_softcapping", 50);
    layer.names.after_attention = "post_attention_layernorm";
    layer.names.before_mlp = "pre_feedforward_layernorm";
    layer.names.after_mlp = "post_feedforward_layernorm";
    layer.rope = rope;
  });
  return spec;
}

constexpr std::string_view kCheckpoints[] = {
    "google/gemma-2-2b-it",
    "google/gemma-2-9b-it",
    "google/gemma-2-27b-it",
};

constexpr std::string_view kTinyConfig = R"({
  "model_type": "gemma2", "vocab_size": 96, "hidden_size": 64,
  "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
  "num_key_value_heads": 2, "rms_norm_eps": 1e-05,
  "max_position_embeddings": 512, "rope_theta": 10000.0,
  "tie_word_embeddings": true, "head_dim": 16, "query_pre_attn_scalar": 16.0
})";

}  // namespace

constinit const ModelInfo kInfo = {
    .model_type = "gemma2",
    .aliases = {},
    .make = make_decoder<read_spec>,
    .tiny_config = kTinyConfig,
    .notes = "Gemma 2",
    .features = "capped scores and logits, four norms a block",
    .checkpoints = kCheckpoints,
};

}  // namespace mlxx::models::gemma2
