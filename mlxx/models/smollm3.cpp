// SmolLM3: Llama's blocks, every fourth without rotation (NoPE). Reference:
// mlx-lm 0.32.2, models/smollm3.py.
#include <vector>
#include "mlxx/models/decoder_config.h"
#include "mlxx/models/decoder_model.h"
#include "mlxx/models/registry.h"

namespace mlxx::models::smollm3 {

extern const ModelInfo kInfo;

namespace {

// Per layer, whether it rotates.
std::vector<bool> read_rotating(const DecoderConfig& config, size_t layers) {
  auto given = config.view().numbers_or_empty("no_rope_layers");
  if (given.empty()) {
    int interval = config.size_or("no_rope_layer_interval", 4);
    std::vector<bool> rotating;
    for (size_t i = 0; i < layers; ++i) {
      rotating.push_back((i + 1) % static_cast<size_t>(interval) != 0);
    }
    return rotating;
  }
  if (given.size() != layers) {
    config.view().fail_at(
        "no_rope_layers",
        fmt::format("has {} entries for {} layers", given.size(), layers));
  }
  return {given.begin(), given.end()};
}

DecoderSpec read_spec(const DecoderConfig& config) {
  config.require_activation({"silu"});
  DecoderSpec spec = config.decoder();
  config.read_windows(spec);
  auto rope = config.rope(spec.layers.front().head_size);
  auto rotating = read_rotating(config, spec.layers.size());
  spec.for_each_layer([&](nn::LayerSpec& layer, int i) {
    layer.qkv_bias = config.flag_or("attention_bias", false);
    layer.output_bias = layer.qkv_bias;
    layer.mlp_bias = config.flag_or("mlp_bias", false);
    layer.rope = rotating[static_cast<size_t>(i)] ? rope : nullptr;
  });
  return spec;
}

constexpr std::string_view kCheckpoints[] = {
    "HuggingFaceTB/SmolLM3-3B",
};

constexpr std::string_view kTinyConfig = R"({
  "model_type": "smollm3", "vocab_size": 96, "hidden_size": 64,
  "intermediate_size": 96, "num_hidden_layers": 4, "num_attention_heads": 4,
  "num_key_value_heads": 2, "rms_norm_eps": 1e-05,
  "max_position_embeddings": 512, "rope_theta": 10000.0,
  "tie_word_embeddings": true, "no_rope_layers": [1, 1, 1, 0]
})";

}  // namespace

constinit const ModelInfo kInfo = {
    .model_type = "smollm3",
    .aliases = {},
    .make = make_decoder<read_spec>,
    .tiny_config = kTinyConfig,
    .notes = "SmolLM3",
    .features = "layers without rotation",
    .checkpoints = kCheckpoints,
};

}  // namespace mlxx::models::smollm3
