// InternLM3: Llama's blocks with one flag for attention's biases and one for
// the network's. Reference: mlx-lm 0.32.2, models/internlm3.py.
#include "mlxx/models/decoder_config.h"
#include "mlxx/models/decoder_model.h"
#include "mlxx/models/registry.h"

namespace mlxx::models::internlm3 {

extern const ModelInfo kInfo;

namespace {

DecoderSpec read_spec(const DecoderConfig& config) {
  config.require_activation({"silu"});
  DecoderSpec spec = config.decoder();
  auto rope = config.rope(spec.layers.front().head_size);
  spec.for_each_layer([&](nn::LayerSpec& layer, int) {
    layer.qkv_bias = config.flag_or("qkv_bias", false);
    layer.output_bias = layer.qkv_bias;
    layer.mlp_bias = config.flag_or("bias", false);
    layer.rope = rope;
  });
  return spec;
}

constexpr std::string_view kCheckpoints[] = {
    "internlm/internlm3-8b-instruct",
};

constexpr std::string_view kTinyConfig = R"({
  "model_type": "internlm3", "vocab_size": 96, "hidden_size": 64,
  "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
  "num_key_value_heads": 2, "rms_norm_eps": 1e-05,
  "max_position_embeddings": 512, "rope_theta": 10000.0,
  "tie_word_embeddings": false
})";

}  // namespace

constinit const ModelInfo kInfo = {
    .model_type = "internlm3",
    .aliases = {},
    .make = make_decoder<read_spec>,
    .tiny_config = kTinyConfig,
    .notes = "InternLM3",
    .features = "dynamic rope",
    .checkpoints = kCheckpoints,
};

}  // namespace mlxx::models::internlm3
