// EXAONE 4: norms after attention and network; local layers rotate and have a
// window, global ones neither. Reference: mlx-lm 0.32.2, models/exaone4.py.
#include <string>
#include "mlxx/models/decoder_config.h"
#include "mlxx/models/decoder_model.h"
#include "mlxx/models/registry.h"

namespace mlxx::models::exaone4 {

extern const ModelInfo kInfo;

namespace {

// "LLLG": which layers are local, again and again; empty: none is.
std::string read_pattern(const DecoderConfig& config) {
  constexpr auto kKey = "sliding_window_pattern";
  const JsonView& view = config.view();
  if (!view.has(kKey)) {
    return {};
  }
  std::string pattern = view.string(kKey);
  if (pattern.empty() || pattern.find_first_not_of("LG") != std::string::npos) {
    view.fail_at(kKey, "is not a pattern of L and G");
  }
  return pattern;
}

DecoderSpec read_spec(const DecoderConfig& config) {
  config.require_activation({"silu"});
  DecoderSpec spec = config.decoder();
  auto rope = config.rope(spec.layers.front().head_size, 1000000);
  std::string pattern = read_pattern(config);
  spec.for_each_layer([&](nn::LayerSpec& layer, int i) {
    bool local = !pattern.empty() &&
        pattern[static_cast<size_t>(i) % pattern.size()] == 'L';
    layer.window = local ? config.size("sliding_window") : 0;
    layer.rope = local || pattern.empty() ? rope : nullptr;
    layer.qk_norm = nn::QkNorm::per_head;
    layer.names.before_attention = "";
    layer.names.after_attention = "post_attention_layernorm";
    layer.names.before_mlp = "";
    layer.names.after_mlp = "post_feedforward_layernorm";
  });
  return spec;
}

constexpr std::string_view kCheckpoints[] = {
    "LGAI-EXAONE/EXAONE-4.0-1.2B",
    "LGAI-EXAONE/EXAONE-4.0-32B",
};

constexpr std::string_view kTinyConfig = R"({
  "model_type": "exaone4", "vocab_size": 96, "hidden_size": 64,
  "intermediate_size": 96, "num_hidden_layers": 4, "num_attention_heads": 4,
  "num_key_value_heads": 2, "rms_norm_eps": 1e-05,
  "max_position_embeddings": 512, "rope_theta": 10000.0,
  "tie_word_embeddings": false, "head_dim": 16, "sliding_window": 16,
  "sliding_window_pattern": "LLLG"
})";

}  // namespace

constinit const ModelInfo kInfo = {
    .model_type = "exaone4",
    .aliases = {},
    .make = make_decoder<read_spec>,
    .tiny_config = kTinyConfig,
    .notes = "EXAONE 4",
    .features =
        "sliding windows, layers without rotation, norms of queries and keys",
    .checkpoints = kCheckpoints,
};

}  // namespace mlxx::models::exaone4
