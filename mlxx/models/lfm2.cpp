// LFM2: gated short convolutions, with attention in a few of the layers.
// Reference: mlx-lm 0.32.2, models/lfm2.py.
#include "mlxx/models/lfm2_layers.h"
#include "mlxx/models/recurrent_tensors.h"
#include "mlxx/models/registry.h"
#include "mlxx/nn/mixer_layer.h"

namespace mlxx::models::lfm2 {

extern const ModelInfo kInfo;

namespace {

// Of the SwiGLU network: adjusted from the config's number as the published
// models are.
int read_network_size(const DecoderConfig& config) {
  int64_t size = config.view().has("block_ff_dim")
      ? config.size("block_ff_dim")
      : config.size("intermediate_size");
  if (config.flag_or("block_auto_adjust_ff_dim", true)) {
    size = 2 * size / 3;
    double multiplier =
        config.view().number_or("block_ffn_dim_multiplier", 1.0);
    int64_t multiple = config.size("block_multiple_of");
    if (!(multiplier > 0 && multiplier < 1024)) {
      config.view().fail_at(
          "block_ffn_dim_multiplier",
          fmt::format("is {}", multiplier));
    }
    size = static_cast<int64_t>(multiplier * static_cast<double>(size));
    size = multiple * ((size + multiple - 1) / multiple);
  }
  if (size < 1 || size > 1 << 24) {
    config.view().fail_at(
        "block_ff_dim",
        fmt::format("leads to a width of {}", size));
  }
  return static_cast<int>(size);
}

std::unique_ptr<Model> make(const hub::Checkpoint& checkpoint) {
  DecoderConfig config(checkpoint);
  DecoderSpec spec = read_lfm2(config);
  int width = config.size_or("block_dim", spec.hidden_size);
  if (width != spec.hidden_size) {
    config.view().fail_at(
        "block_dim",
        fmt::format("is {}, not hidden_size {}", width, spec.hidden_size));
  }
  nn::LayerSpec network = spec.layers.front();
  network.intermediate_size = read_network_size(config);
  network.names.gate = "w1";
  network.names.up = "w3";
  network.names.down = "w2";
  auto layers = lfm2_layers(config, spec, [&](int) {
    return std::make_unique<nn::MlpNetwork>(network);
  });
  return std::make_unique<DecoderModel>(std::move(spec), std::move(layers));
}

void rewrite(hub::TensorRewrite& tensors) {
  turn_convolutions(tensors, "conv.weight");
}

constexpr std::string_view kCheckpoints[] = {
    "LiquidAI/LFM2-350M",
    "LiquidAI/LFM2-1.2B",
    "LiquidAI/LFM2-2.6B",
};

constexpr std::string_view kTinyConfig = R"({
  "model_type": "lfm2", "vocab_size": 96, "hidden_size": 64,
  "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2,
  "max_position_embeddings": 512, "norm_eps": 1e-05, "conv_bias": true,
  "conv_L_cache": 3, "block_dim": 64, "block_ff_dim": 144,
  "block_multiple_of": 32, "block_ffn_dim_multiplier": 1.0,
  "block_auto_adjust_ff_dim": true, "rope_theta": 10000.0,
  "full_attn_idxs": [1]
})";

}  // namespace

constinit const ModelInfo kInfo = {
    .model_type = "lfm2",
    .aliases = {},
    .make = make,
    .tiny_config = kTinyConfig,
    .notes = "LFM2 dense models",
    .features = "gated short convolutions, few attention layers",
    .checkpoints = kCheckpoints,
    .rewrite = rewrite,
};

}  // namespace mlxx::models::lfm2
