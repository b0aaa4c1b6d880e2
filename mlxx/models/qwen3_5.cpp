// The text part of Qwen3.5, dense and with experts: gated DeltaNets with a
// gated attention in every fourth layer. Reference: mlx-lm 0.32.2,
// models/qwen3_5.py and qwen3_5_moe.py.
#include "mlxx/models/gated_delta_decoder.h"
#include "mlxx/models/recurrent_tensors.h"
#include "mlxx/models/registry.h"

namespace mlxx::models::qwen3_5 {

extern const ModelInfo kInfo;

namespace {

constexpr GatedDeltaFamily kFamily = {
    .packed = false,
    .rope_base = 100000,
    .renormalize = true};

DecoderConfig text_config(const hub::Checkpoint& checkpoint) {
  JsonView view(checkpoint.config(), "config.json");
  return view.has("text_config")
      ? DecoderConfig(checkpoint, view.object("text_config"))
      : DecoderConfig(checkpoint);
}

std::unique_ptr<Model> make(const hub::Checkpoint& checkpoint) {
  DecoderConfig config = text_config(checkpoint);
  DecoderSpec spec = read_gated_delta_decoder(config, kFamily);
  spec.model_type = DecoderConfig(checkpoint).view().string("model_type");
  bool sparse = config.view().integer_or("num_experts", 0, 0, 65536) > 0;
  auto layers =
      gated_delta_layers(config, spec, kFamily, [&](int) { return sparse; });
  return std::make_unique<DecoderModel>(std::move(spec), std::move(layers));
}

// All experts of a layer in one tensor, gate above up.
void split_experts(hub::TensorRewrite& tensors) {
  for (int64_t layer :
       tensors.numbers("model.layers.{}.mlp.experts.gate_up_proj")) {
    std::string from = fmt::format("model.layers.{}.mlp.experts.", layer);
    std::string to = fmt::format("model.layers.{}.mlp.switch_mlp.", layer);
    tensors.split_evenly(
        from + "gate_up_proj",
        -2,
        {to + "gate_proj.weight", to + "up_proj.weight"});
    tensors.rename(from + "down_proj", to + "down_proj.weight");
  }
}

void rewrite(hub::TensorRewrite& tensors) {
  tensors.drop_prefix("vision_tower", "vision tower");
  tensors.drop_prefix("model.visual", "vision tower");
  tensors.drop_each(
      [](std::string_view name) {
        return name.find("mtp.") != std::string_view::npos;
      },
      "prediction of several tokens");
  tensors.rename_prefix("model.language_model.", "model.");
  // As MLX's converter names them.
  tensors.rename_prefix("language_model.", "");
  split_experts(tensors);
  if (turn_convolutions(tensors, "conv1d.weight")) {
    add_one_to_norms(tensors, qwen_norms());
  }
}

constexpr std::string_view kAliases[] = {
    "qwen3_5_text",
    "qwen3_5_moe",
    "qwen3_5_moe_text",
};

constexpr std::string_view kCheckpoints[] = {
    "Qwen/Qwen3.5-4B",
    "Qwen/Qwen3.5-27B",
    "Qwen/Qwen3.5-35B-A3B",
};

constexpr std::string_view kTinyConfig = R"({
  "model_type": "qwen3_5", "text_config": {
  "model_type": "qwen3_5_text", "vocab_size": 96, "hidden_size": 64,
  "intermediate_size": 96, "num_hidden_layers": 4, "num_attention_heads": 4,
  "num_key_value_heads": 2, "head_dim": 32, "rms_norm_eps": 1e-06,
  "max_position_embeddings": 512, "linear_num_value_heads": 4,
  "linear_num_key_heads": 2, "linear_key_head_dim": 16,
  "linear_value_head_dim": 24, "linear_conv_kernel_dim": 4,
  "full_attention_interval": 2, "tie_word_embeddings": true,
  "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0,
  "partial_rotary_factor": 0.25}}
})";

}  // namespace

constinit const ModelInfo kInfo = {
    .model_type = "qwen3_5",
    .aliases = kAliases,
    .make = make,
    .tiny_config = kTinyConfig,
    .notes = "Qwen3.5, dense and with experts; images are not read",
    .features = "gated DeltaNet, gated attention, experts with a shared one",
    .checkpoints = kCheckpoints,
    .rewrite = rewrite,
};

}  // namespace mlxx::models::qwen3_5
