// Command R7B: attention and network read one LayerNorm and are added
// together; global layers do not rotate. Reference: mlx-lm 0.32.2,
// models/cohere2.py.
#include "mlxx/models/decoder_config.h"
#include "mlxx/models/decoder_model.h"
#include "mlxx/models/registry.h"

namespace mlxx::models::cohere2 {

extern const ModelInfo kInfo;

namespace {

DecoderSpec read_spec(const DecoderConfig& config) {
  config.require_activation({"silu"});
  ConfigKeys keys;
  keys.norm_eps = "layer_norm_eps";
  DecoderSpec spec = config.decoder(keys);
  spec.tied = true;
  spec.logits_multiplier = config.number_or("logit_scale", 0.0625);
  const nn::NormSpec norm = {
      .kind = nn::NormSpec::Kind::layer,
      .eps = spec.final_norm.eps,
      .bias = config.flag_or("layer_norm_bias", false)};
  spec.final_norm = norm;
  int head_size = spec.layers.front().head_size;
  auto rope = config.plain_rope(head_size, config.rope_base(50000), true);
  int pattern = config.size_or("sliding_window_pattern", 4);
  int window = config.size_or("sliding_window", 4096);
  spec.for_each_layer([&](nn::LayerSpec& layer, int i) {
    bool is_global = (i + 1) % pattern == 0;
    layer.window = is_global ? 0 : window;
    layer.rope = is_global ? nullptr : rope;
    layer.norm = norm;
    layer.qkv_bias = config.flag_or("attention_bias", false);
    layer.output_bias = layer.qkv_bias;
    layer.parallel = true;
    layer.parallel_sum = nn::ParallelSum::branches_first;
    layer.score_dtype = nn::ScoreDtype::float32_for_half;
    layer.names.before_mlp = "";
  });
  return spec;
}

constexpr std::string_view kCheckpoints[] = {
    "CohereLabs/c4ai-command-r7b-12-2024",
    "CohereLabs/c4ai-command-a-03-2025",
};

constexpr std::string_view kTinyConfig = R"({
  "model_type": "cohere2", "vocab_size": 96, "hidden_size": 64,
  "intermediate_size": 96, "num_hidden_layers": 4, "num_attention_heads": 4,
  "num_key_value_heads": 2, "max_position_embeddings": 512,
  "rope_theta": 10000.0, "tie_word_embeddings": true, "layer_norm_eps": 1e-05,
  "head_dim": 16, "sliding_window": 16, "sliding_window_pattern": 4,
  "logit_scale": 0.0625
})";

}  // namespace

constinit const ModelInfo kInfo = {
    .model_type = "cohere2",
    .aliases = {},
    .make = make_decoder<read_spec>,
    .tiny_config = kTinyConfig,
    .notes = "Cohere Command R7B and Command A",
    .features = "sliding windows, parallel attention and network",
    .checkpoints = kCheckpoints,
};

}  // namespace mlxx::models::cohere2
