// Gemma 3, its text part: four norms a block, norms of queries and keys, five
// of six layers with a window and a base of their own. Reference: mlx-lm
// 0.32.2, models/gemma3_text.py.
#include <cmath>
#include <optional>
#include "mlxx/models/decoder_config.h"
#include "mlxx/models/decoder_model.h"
#include "mlxx/models/registry.h"

namespace mlxx::models::gemma3_text {

extern const ModelInfo kInfo;

namespace {

constexpr auto kPlusOne = nn::NormSpec::Kind::rms_plus_one;

// transformers 5 has one object for each kind of layer in rope_parameters.
double base_of(
    const DecoderConfig& config,
    const char* key,
    const char* kind,
    double fallback) {
  const JsonView& view = config.view();
  if (!view.has(key) && view.has("rope_parameters")) {
    JsonView parameters = view.object("rope_parameters");
    if (parameters.has(kind)) {
      return parameters.object(kind).number_or("rope_theta", fallback);
    }
  }
  return view.number_or(key, fallback);
}

std::shared_ptr<const nn::Rope> global_rope(
    const DecoderConfig& config,
    int head_size) {
  const JsonView& view = config.view();
  nn::RopeOptions options;
  options.dims = head_size;
  options.base = base_of(config, "rope_theta", "full_attention", 1000000);
  options.max_position_embeddings =
      config.size_or("max_position_embeddings", 32768);
  std::optional<JsonView> scaling;
  if (view.has("rope_scaling")) {
    scaling = view.object("rope_scaling");
  } else if (view.has("rope_parameters")) {
    JsonView parameters = view.object("rope_parameters");
    if (parameters.has("full_attention")) {
      scaling = parameters.object("full_attention");
    }
  }
  return nn::make_rope(options, scaling);
}

DecoderSpec read_spec(const DecoderConfig& config) {
  DecoderSpec spec = config.decoder();
  // As the reference: a head that is there is used.
  spec.tied = !config.has_tensor(spec.head + ".weight");
  spec.embedding_multiplier =
      static_cast<float>(std::sqrt(double{1} * spec.hidden_size));
  spec.multiplier_rounding = MultiplierRounding::bfloat16;
  spec.final_norm.kind = kPlusOne;
  int head_size = spec.layers.front().head_size;
  int pattern = config.size_or("sliding_window_pattern", 6);
  int window = config.size_or("sliding_window", 512);
  double scalar = config.view().number_or("query_pre_attn_scalar", 256);
  auto global = global_rope(config, head_size);
  auto local = config.plain_rope(
      head_size,
      base_of(config, "rope_local_base_freq", "sliding_attention", 10000));
  spec.for_each_layer([&](nn::LayerSpec& layer, int i) {
    bool is_global = (i + 1) % pattern == 0;
    layer.window = is_global ? 0 : window;
    layer.rope = is_global ? global : local;
    layer.norm.kind = kPlusOne;
    layer.qk_norm = nn::QkNorm::per_head;
    layer.activation = kernels::Activation::gelu_tanh;
    layer.attention_scale = static_cast<float>(std::pow(scalar, -0.5));
    layer.clip_residual = true;
    layer.names.after_attention = "post_attention_layernorm";
    layer.names.before_mlp = "pre_feedforward_layernorm";
    layer.names.after_mlp = "post_feedforward_layernorm";
  });
  return spec;
}

constexpr std::string_view kCheckpoints[] = {
    "google/gemma-3-270m-it",
    "google/gemma-3-1b-it",
};

constexpr std::string_view kTinyConfig = R"({
  "model_type": "gemma3_text", "vocab_size": 96, "hidden_size": 64,
  "intermediate_size": 96, "num_hidden_layers": 4, "num_attention_heads": 4,
  "num_key_value_heads": 2, "rms_norm_eps": 1e-05,
  "max_position_embeddings": 512, "rope_theta": 10000.0,
  "tie_word_embeddings": true, "head_dim": 16, "query_pre_attn_scalar": 16.0,
  "sliding_window": 16, "sliding_window_pattern": 2,
  "rope_local_base_freq": 10000.0
})";

}  // namespace

constinit const ModelInfo kInfo = {
    .model_type = "gemma3_text",
    .aliases = {},
    .make = make_decoder<read_spec>,
    .tiny_config = kTinyConfig,
    .notes = "Gemma 3, text",
    .features =
        "sliding windows, norms of queries and keys, four norms a block",
    .checkpoints = kCheckpoints,
};

}  // namespace mlxx::models::gemma3_text
