// Dense text models of Llama 4's form (MobileLLM-R1): queries and keys normed
// without weights, some layers without rotation. Reference: mlx-lm 0.32.2,
// models/llama4_text.py.
#include "mlxx/models/decoder_config.h"
#include "mlxx/models/decoder_model.h"
#include "mlxx/models/llama4_layer.h"
#include "mlxx/models/registry.h"

namespace mlxx::models::llama4_text {

extern const ModelInfo kInfo;

namespace {

std::unique_ptr<Model> make(const hub::Checkpoint& checkpoint) {
  DecoderConfig config(checkpoint);
  config.require_activation({"silu"});
  ConfigKeys keys;
  keys.intermediate_size = "intermediate_size_mlp";
  DecoderSpec spec = config.decoder(keys);
  spec.head = "output";
  spec.tied = read_tied(config, spec);
  // 1 for a layer that rotates, whatever the name says.
  auto rotates = config.view().numbers_or_empty("no_rope_layers");
  if (rotates.size() != spec.layers.size()) {
    config.view().fail_at(
        "no_rope_layers",
        fmt::format(
            "has {} entries for {} layers",
            rotates.size(),
            spec.layers.size()));
  }
  auto rope = config.plain_rope(
      spec.layers.front().head_size,
      config.rope_base(10000),
      /* traditional= */ true);
  DecoderLayers layers;
  for (size_t i = 0; i < rotates.size(); ++i) {
    Llama4LayerSpec layer;
    layer.block = spec.layers[i];
    layer.block.rope = rotates[i] != 0 ? rope : nullptr;
    if (config.flag_or("use_qk_norm", true)) {
      layer.unit_norm = Llama4LayerSpec::UnitNorm::before_rope;
      layer.unit_norm_eps = layer.block.norm.eps;
    }
    layers.push_back(std::make_unique<Llama4Layer>(layer, nullptr));
  }
  return std::make_unique<DecoderModel>(std::move(spec), std::move(layers));
}

constexpr std::string_view kCheckpoints[] = {
    "facebook/MobileLLM-R1-950M",
    "facebook/MobileLLM-R1-140M",
};

constexpr std::string_view kTinyConfig = R"({
  "model_type": "llama4_text", "vocab_size": 96, "hidden_size": 64,
  "intermediate_size": 96, "intermediate_size_mlp": 96,
  "num_hidden_layers": 4, "num_attention_heads": 4,
  "num_key_value_heads": 2, "head_dim": 16, "rms_norm_eps": 1e-05,
  "max_position_embeddings": 512, "rope_theta": 500000.0,
  "tie_word_embeddings": false, "no_rope_layers": [1, 1, 1, 0],
  "use_qk_norm": true
})";

}  // namespace

constinit const ModelInfo kInfo = {
    .model_type = "llama4_text",
    .aliases = {},
    .make = make,
    .tiny_config = kTinyConfig,
    .notes = "Dense text models of Llama 4's form",
    .features = "qk-norm without weights, layers without rope",
    .checkpoints = kCheckpoints,
};

}  // namespace mlxx::models::llama4_text
