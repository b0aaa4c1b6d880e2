// Ministral 3: Llama's blocks whose queries grow with their position.
// Reference: mlx-lm 0.32.2, models/ministral3.py.
#include "mlxx/models/decoder_config.h"
#include "mlxx/models/decoder_model.h"
#include "mlxx/models/registry.h"

namespace mlxx::models::ministral3 {

extern const ModelInfo kInfo;

namespace {

DecoderSpec read_spec(const DecoderConfig& config) {
  config.require_activation({"silu"});
  DecoderSpec spec = config.decoder();
  config.read_windows(spec);
  JsonView parameters = config.view().object("rope_parameters");
  nn::PositionScale scale{
      .beta = static_cast<float>(parameters.number("llama_4_scaling_beta")),
      .original_length = static_cast<int>(parameters.integer(
          "original_max_position_embeddings",
          1,
          INT32_MAX))};
  nn::RopeOptions options;
  options.dims = spec.layers.front().head_size;
  options.base = parameters.number("rope_theta");
  options.max_position_embeddings = spec.max_position_embeddings;
  auto rope = nn::make_rope(options, parameters);
  spec.for_each_layer([&](nn::LayerSpec& layer, int) {
    layer.query_scale = scale;
    layer.rope = rope;
  });
  return spec;
}

constexpr std::string_view kCheckpoints[] = {
    "mistralai/Ministral-3-3B-Instruct-2512",
    "mistralai/Ministral-3-8B-Instruct-2512",
};

constexpr std::string_view kTinyConfig = R"({
  "model_type": "ministral3", "vocab_size": 96, "hidden_size": 64,
  "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
  "num_key_value_heads": 2, "rms_norm_eps": 1e-05,
  "max_position_embeddings": 512, "tie_word_embeddings": false, "head_dim": 16,
  "rope_parameters": {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 16, "llama_4_scaling_beta": 0.1, "beta_fast": 32.0, "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0}
})";

}  // namespace

constinit const ModelInfo kInfo = {
    .model_type = "ministral3",
    .aliases = {},
    .make = make_decoder<read_spec>,
    .tiny_config = kTinyConfig,
    .notes = "Ministral 3 and Mistral Small 4 text models",
    .features = "yarn, queries scaled by position",
    .checkpoints = kCheckpoints,
};

}  // namespace mlxx::models::ministral3
