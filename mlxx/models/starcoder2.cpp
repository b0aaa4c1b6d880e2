// StarCoder 2: LayerNorms and a GELU network without a gate, biases
// everywhere. Reference: mlx-lm 0.32.2, models/starcoder2.py.
#include "mlxx/models/decoder_config.h"
#include "mlxx/models/decoder_model.h"
#include "mlxx/models/registry.h"

namespace mlxx::models::starcoder2 {

extern const ModelInfo kInfo;

namespace {

DecoderSpec read_spec(const DecoderConfig& config) {
  ConfigKeys keys;
  keys.norm_eps = "norm_epsilon";
  DecoderSpec spec = config.decoder(keys);
  const nn::NormSpec norm = {
      .kind = nn::NormSpec::Kind::layer,
      .eps = spec.final_norm.eps,
      .bias = true};
  spec.final_norm = norm;
  int head_size = spec.layers.front().head_size;
  auto rope = config.plain_rope(head_size, config.rope_base(100000));
  spec.for_each_layer([&](nn::LayerSpec& layer, int) {
    layer.norm = norm;
    layer.qkv_bias = true;
    layer.output_bias = true;
    layer.mlp_bias = true;
    layer.activation = kernels::Activation::gelu;
    layer.names.gate = "";
    layer.names.up = "c_fc";
    layer.names.down = "c_proj";
    layer.rope = rope;
  });
  return spec;
}

constexpr std::string_view kCheckpoints[] = {
    "bigcode/starcoder2-3b",
    "bigcode/starcoder2-15b",
};

constexpr std::string_view kTinyConfig = R"({
  "model_type": "starcoder2", "vocab_size": 96, "hidden_size": 64,
  "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
  "num_key_value_heads": 2, "max_position_embeddings": 512,
  "rope_theta": 10000.0, "tie_word_embeddings": true, "norm_epsilon": 1e-05
})";

}  // namespace

constinit const ModelInfo kInfo = {
    .model_type = "starcoder2",
    .aliases = {},
    .make = make_decoder<read_spec>,
    .tiny_config = kTinyConfig,
    .notes = "StarCoder 2",
    .features = "LayerNorm, GELU without a gate",
    .checkpoints = kCheckpoints,
};

}  // namespace mlxx::models::starcoder2
