// Nemotron-4 and Minitron: LayerNorms of weight 1 + w and squared ReLU without
// a gate. Reference: mlx-lm 0.32.2, models/nemotron.py.
#include "mlxx/models/decoder_config.h"
#include "mlxx/models/decoder_model.h"
#include "mlxx/models/registry.h"

namespace mlxx::models::nemotron {

extern const ModelInfo kInfo;

namespace {

DecoderSpec read_spec(const DecoderConfig& config) {
  config.require_activation({"relu2"});
  ConfigKeys keys;
  keys.norm_eps = "norm_eps";
  DecoderSpec spec = config.decoder(keys);
  const nn::NormSpec norm = {
      .kind = nn::NormSpec::Kind::layer_plus_one,
      .eps = spec.final_norm.eps,
      .bias = true};
  spec.final_norm = norm;
  auto rope = config.rope(config.rotated(spec.layers.front().head_size, 0.5));
  spec.for_each_layer([&](nn::LayerSpec& layer, int) {
    layer.norm = norm;
    layer.qkv_bias = config.flag_or("attention_bias", false);
    layer.output_bias = layer.qkv_bias;
    layer.mlp_bias = config.flag_or("mlp_bias", false);
    layer.activation = kernels::Activation::relu_squared;
    layer.names.gate = "";
    layer.rope = rope;
  });
  return spec;
}

constexpr std::string_view kCheckpoints[] = {
    "nvidia/Minitron-4B-Base",
    "nvidia/Nemotron-Mini-4B-Instruct",
};

constexpr std::string_view kTinyConfig = R"({
  "model_type": "nemotron", "vocab_size": 96, "hidden_size": 64,
  "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
  "num_key_value_heads": 2, "max_position_embeddings": 512,
  "rope_theta": 10000.0, "tie_word_embeddings": false, "norm_eps": 1e-05,
  "hidden_act": "relu2", "partial_rotary_factor": 0.5
})";

}  // namespace

constinit const ModelInfo kInfo = {
    .model_type = "nemotron",
    .aliases = {},
    .make = make_decoder<read_spec>,
    .tiny_config = kTinyConfig,
    .notes = "Nemotron-4 and Minitron",
    .features = "LayerNorm, squared ReLU, partial rope",
    .checkpoints = kCheckpoints,
};

}  // namespace mlxx::models::nemotron
