// Phi-3 and Phi-4: Llama's blocks with one matrix for queries, keys and values
// and one for gate and up. Always with the long factors of a longrope.
// Reference: mlx-lm 0.32.2, models/phi3.py.
#include "mlxx/models/decoder_config.h"
#include "mlxx/models/decoder_model.h"
#include "mlxx/models/fused_tensors.h"
#include "mlxx/models/registry.h"

namespace mlxx::models::phi3 {

extern const ModelInfo kInfo;

namespace {

std::shared_ptr<const nn::Rope> read_rope(
    const DecoderConfig& config,
    int head_size) {
  const JsonView& view = config.view();
  int dims = config.rotated(head_size);
  double base = config.rope_base(10000);
  if (!view.has("rope_scaling")) {
    return config.plain_rope(
        dims,
        base,
        config.flag_or("rope_traditional", false));
  }
  return config.rope(dims);
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
