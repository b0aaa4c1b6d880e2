// OLMo 2: norms after attention and network instead of before, and of the
// whole width of queries and keys. Reference: mlx-lm 0.32.2, models/olmo2.py.
#include "mlxx/models/decoder_config.h"
#include "mlxx/models/decoder_model.h"
#include "mlxx/models/registry.h"

namespace mlxx::models::olmo2 {

extern const ModelInfo kInfo;

namespace {

DecoderSpec read_spec(const DecoderConfig& config) {
  config.require_activation({"silu"});
  DecoderSpec spec = config.decoder();
  auto rope = config.rope(spec.layers.front().head_size);
  spec.for_each_layer([&](nn::LayerSpec& layer, int) {
    layer.qkv_bias = config.flag_or("attention_bias", false);
    layer.output_bias = layer.qkv_bias;
    layer.mlp_bias = config.flag_or("mlp_bias", false);
    layer.qk_norm = nn::QkNorm::whole_width;
    layer.names.before_attention = "";
    layer.names.after_attention = "post_attention_layernorm";
    layer.names.before_mlp = "";
    layer.names.after_mlp = "post_feedforward_layernorm";
    layer.rope = rope;
  });
  return spec;
}

constexpr std::string_view kCheckpoints[] = {
    "allenai/OLMo-2-0425-1B-Instruct",
    "allenai/OLMo-2-1124-7B-Instruct",
};

constexpr std::string_view kTinyConfig = R"({
  "model_type": "olmo2", "vocab_size": 96, "hidden_size": 64,
  "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
  "num_key_value_heads": 2, "rms_norm_eps": 1e-05,
  "max_position_embeddings": 512, "rope_theta": 10000.0,
  "tie_word_embeddings": false
})";

}  // namespace

constinit const ModelInfo kInfo = {
    .model_type = "olmo2",
    .aliases = {},
    .make = make_decoder<read_spec>,
    .tiny_config = kTinyConfig,
    .notes = "OLMo 2",
    .features = "norms after attention and network, norms of queries and keys",
    .checkpoints = kCheckpoints,
};

}  // namespace mlxx::models::olmo2
