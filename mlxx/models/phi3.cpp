// Phi-3 and Phi-4: Llama's blocks with one matrix for queries, keys and values
// and one for gate and up. Always with the long factors of a longrope.
// Reference: mlx-lm 0.32.2, models/phi3.py.
#include <nlohmann/json.hpp>

#include "mlxx/models/decoder_config.h"
#include "mlxx/models/decoder_model.h"
#include "mlxx/models/fused_tensors.h"
#include "mlxx/models/registry.h"

namespace mlxx::models::phi3 {

extern const ModelInfo kInfo;

namespace {

// Types that the reference does not know rotate plainly there; here they are
// refused by name.
std::shared_ptr<const nn::Rope> read_rope(
    const DecoderConfig& config,
    int head_size) {
  const JsonView& view = config.view();
  nn::RopeOptions options;
  options.dims = config.rotated(head_size);
  options.base = config.rope_base(10000);
  options.traditional = config.flag_or("rope_traditional", false);
  options.max_position_embeddings =
      config.size_or("max_position_embeddings", 131072);
  constexpr auto kScaling = "rope_scaling";
  if (!view.has(kScaling)) {
    return nn::make_rope(options, std::nullopt);
  }
  Json scaling = view.object(kScaling).json();
  std::string type = scaling.value("rope_type", scaling.value("type", ""));
  scaling["rope_type"] = type == "su" ? "longrope" : type;
  scaling.erase("type");
  // Published files have it beside the factors.
  constexpr auto kOriginal = "original_max_position_embeddings";
  if (!scaling.contains(kOriginal)) {
    scaling[kOriginal] = config.size_or(kOriginal, 4096);
  }
  return nn::make_rope(options, JsonView(scaling, view.place()));
}

DecoderSpec read_spec(const DecoderConfig& config) {
  config.require_activation({"silu"});
  DecoderSpec spec = config.decoder();
  auto rope = read_rope(config, spec.layers.front().head_size);
  spec.for_each_layer([&](nn::LayerSpec& layer, int) { layer.rope = rope; });
  return spec;
}

void rewrite(hub::TensorRewrite& tensors) {
  split_qkv(tensors);
  split_gate_up(tensors);
}

constexpr std::string_view kCheckpoints[] = {
    "microsoft/Phi-3.5-mini-instruct",
    "microsoft/Phi-4-mini-instruct",
    "microsoft/phi-4",
};

constexpr std::string_view kTinyConfig = R"({
  "model_type": "phi3", "vocab_size": 96, "hidden_size": 64,
  "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
  "num_key_value_heads": 2, "rms_norm_eps": 1e-05,
  "max_position_embeddings": 512, "rope_theta": 10000.0,
  "tie_word_embeddings": false
})";

}  // namespace

constinit const ModelInfo kInfo = {
    .model_type = "phi3",
    .aliases = {},
    .make = make_decoder<read_spec>,
    .tiny_config = kTinyConfig,
    .notes = "Phi-3, Phi-3.5 and Phi-4",
    .features = "longrope, partial rope",
    .checkpoints = kCheckpoints,
    .rewrite = rewrite,
};

}  // namespace mlxx::models::phi3
