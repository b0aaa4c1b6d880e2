// StableLM 2: LayerNorms, a quarter of a head rotated; queries and keys meet
// in float32. Reference: mlx-lm 0.32.2, models/stablelm.py.
#include <cmath>
#include <string>
#include <vector>
#include "mlxx/models/decoder_config.h"
#include "mlxx/models/decoder_model.h"
#include "mlxx/models/registry.h"

namespace mlxx::models::stablelm {

extern const ModelInfo kInfo;

namespace {

DecoderSpec read_spec(const DecoderConfig& config) {
  config.require_activation({"silu"});
  ConfigKeys keys;
  keys.norm_eps = "layer_norm_eps";
  DecoderSpec spec = config.decoder(keys);
  spec.tied = false;
  const nn::NormSpec norm = {
      .kind = nn::NormSpec::Kind::layer,
      .eps = spec.final_norm.eps,
      .bias = true};
  spec.final_norm = norm;
  int dims = config.rotated(spec.layers.front().head_size, 0.25);
  auto rope = config.plain_rope(dims, config.rope_base(10000));
  bool parallel = config.flag_or("use_parallel_residual", false);
  spec.for_each_layer([&](nn::LayerSpec& layer, int) {
    layer.norm = norm;
    layer.attention_scale =
        static_cast<float>(std::sqrt(1.0 / layer.head_size));
    layer.qkv_bias = config.flag_or("use_qkv_bias", false);
    if (config.flag_or("qk_layernorm", false)) {
      layer.qk_norm = nn::QkNorm::layer_per_head;
    }
    layer.score_dtype = nn::ScoreDtype::float32;
    layer.parallel = parallel;
    if (parallel) {
      layer.names.before_mlp = "";
    }
    layer.rope = rope;
  });
  return spec;
}

// One LayerNorm per head becomes one matrix of all heads' weights.
void rewrite(hub::TensorRewrite& tensors) {
  for (const char* part : {"q_layernorm", "k_layernorm"}) {
    std::string prefix =
        std::string("model.layers.{}.self_attn.") + part + ".norms.";
    for (int64_t layer : tensors.numbers(prefix + "0.weight")) {
      std::string start =
          fmt::format("model.layers.{}.self_attn.{}", layer, part);
      std::vector<std::string> heads;
      while (
          tensors.has(fmt::format("{}.norms.{}.weight", start, heads.size()))) {
        heads.push_back(fmt::format("{}.norms.{}.weight", start, heads.size()));
      }
      tensors.stack(heads, start + ".weight");
    }
  }
}

constexpr std::string_view kCheckpoints[] = {
    "stabilityai/stablelm-2-1_6b-chat",
    "stabilityai/stablelm-2-12b-chat",
};

constexpr std::string_view kTinyConfig = R"({
  "model_type": "stablelm", "vocab_size": 96, "hidden_size": 64,
  "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
  "num_key_value_heads": 2, "max_position_embeddings": 512,
  "rope_theta": 10000.0, "tie_word_embeddings": false, "layer_norm_eps": 1e-05,
  "use_qkv_bias": true, "partial_rotary_factor": 0.25, "qk_layernorm": true
})";

}  // namespace

constinit const ModelInfo kInfo = {
    .model_type = "stablelm",
    .aliases = {},
    .make = make_decoder<read_spec>,
    .tiny_config = kTinyConfig,
    .notes = "StableLM 2",
    .features = "LayerNorm, partial rope",
    .checkpoints = kCheckpoints,
    .rewrite = rewrite,
};

}  // namespace mlxx::models::stablelm
