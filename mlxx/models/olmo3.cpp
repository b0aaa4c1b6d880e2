// OLMo 3: OLMo 2's blocks, three of four layers with a window. Only full
// layers rotate with the scaled positions. Reference: mlx-lm 0.32.2,
// models/olmo3.py.
#include "mlxx/models/decoder_config.h"
#include "mlxx/models/decoder_model.h"
#include "mlxx/models/registry.h"

namespace mlxx::models::olmo3 {

extern const ModelInfo kInfo;

namespace {

DecoderSpec read_spec(const DecoderConfig& config) {
  config.require_activation({"silu"});
  DecoderSpec spec = config.decoder();
  if (config.view().has("layer_types")) {
    config.read_windows(spec);
  } else {
    spec.for_each_layer([&](nn::LayerSpec& layer, int i) {
      layer.window = (i + 1) % 4 == 0 ? 0 : config.size("sliding_window");
    });
  }
  int head_size = spec.layers.front().head_size;
  auto scaled = config.rope(head_size);
  auto plain = config.plain_rope(head_size, config.rope_base(10000));
  spec.for_each_layer([&](nn::LayerSpec& layer, int) {
    layer.qkv_bias = config.flag_or("attention_bias", false);
    layer.output_bias = layer.qkv_bias;
    layer.qk_norm = nn::QkNorm::whole_width;
    layer.names.before_attention = "";
    layer.names.after_attention = "post_attention_layernorm";
    layer.names.before_mlp = "";
    layer.names.after_mlp = "post_feedforward_layernorm";
    layer.rope = layer.window > 0 ? plain : scaled;
  });
  return spec;
}

constexpr std::string_view kCheckpoints[] = {
    "allenai/Olmo-3-7B-Instruct",
    "allenai/Olmo-3-32B-Think",
};

constexpr std::string_view kTinyConfig = R"({
  "model_type": "olmo3", "vocab_size": 96, "hidden_size": 64,
  "intermediate_size": 96, "num_hidden_layers": 4, "num_attention_heads": 4,
  "num_key_value_heads": 2, "rms_norm_eps": 1e-05,
  "max_position_embeddings": 512, "rope_theta": 10000.0,
  "tie_word_embeddings": false, "sliding_window": 16
})";

}  // namespace

constinit const ModelInfo kInfo = {
    .model_type = "olmo3",
    .aliases = {},
    .make = make_decoder<read_spec>,
    .tiny_config = kTinyConfig,
    .notes = "OLMo 3",
    .features = "sliding windows, norms after attention and network",
    .checkpoints = kCheckpoints,
};

}  // namespace mlxx::models::olmo3
