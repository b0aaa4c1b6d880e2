// Qwen3-Next: gated DeltaNets with a gated attention in every fourth layer,
// and experts beside a shared one. Reference: mlx-lm 0.32.2,
// models/qwen3_next.py.
#include <algorithm>

#include "mlxx/models/gated_delta_decoder.h"
#include "mlxx/models/recurrent_tensors.h"
#include "mlxx/models/registry.h"

namespace mlxx::models::qwen3_next {

extern const ModelInfo kInfo;

namespace {

constexpr GatedDeltaFamily kFamily = {
    .packed = true,
    .rope_base = 10000000,
    .renormalize = false};

std::unique_ptr<Model> make(const hub::Checkpoint& checkpoint) {
  DecoderConfig config(checkpoint);
  DecoderSpec spec = read_gated_delta_decoder(config, kFamily);
  auto dense = config.view().numbers_or_empty("mlp_only_layers");
  int step = config.size_or("decoder_sparse_step", 1);
  bool has_experts = config.view().integer_or("num_experts", 0, 0, 65536) > 0;
  auto layers = gated_delta_layers(config, spec, kFamily, [&](int layer) {
    return std::ranges::find(dense, layer) == dense.end() && has_experts &&
        (layer + 1) % step == 0;
  });
  return std::make_unique<DecoderModel>(std::move(spec), std::move(layers));
}

void rewrite(hub::TensorRewrite& tensors) {
  tensors.drop_each(
      [](std::string_view name) {
        return name.find("mtp.") != std::string_view::npos;
      },
      "prediction of several tokens");
  auto count = JsonView(tensors.config(), "config.json")
                   .integer_or("num_experts", 0, 0, 65536);
  for (const char* part : {"gate_proj", "up_proj", "down_proj"}) {
    tensors.stack_experts(
        fmt::format("model.layers.{{}}.mlp.experts.{{e}}.{}.weight", part),
        count,
        fmt::format("model.layers.{{}}.mlp.switch_mlp.{}.weight", part));
  }
  if (turn_convolutions(tensors, "conv1d.weight")) {
    add_one_to_norms(tensors, qwen_norms());
  }
}

constexpr std::string_view kCheckpoints[] = {
    "Qwen/Qwen3-Next-80B-A3B-Instruct",
    "Qwen/Qwen3-Coder-Next",
};

constexpr std::string_view kTinyConfig = R"({
  "model_type": "qwen3_next", "vocab_size": 96, "hidden_size": 64,
  "intermediate_size": 96, "num_hidden_layers": 4, "num_attention_heads": 4,
  "num_key_value_heads": 2, "head_dim": 32, "rms_norm_eps": 1e-06,
  "max_position_embeddings": 512, "rope_theta": 10000.0,
  "partial_rotary_factor": 0.25, "linear_num_value_heads": 4,
  "linear_num_key_heads": 2, "linear_key_head_dim": 16,
  "linear_value_head_dim": 16, "linear_conv_kernel_dim": 4, "num_experts": 4,
  "num_experts_per_tok": 2, "decoder_sparse_step": 1, "mlp_only_layers": [0],
  "moe_intermediate_size": 32, "shared_expert_intermediate_size": 48,
  "norm_topk_prob": true, "tie_word_embeddings": false
})";

}  // namespace

constinit const ModelInfo kInfo = {
    .model_type = "qwen3_next",
    .aliases = {},
    .make = make,
    .tiny_config = kTinyConfig,
    .notes = "Qwen3-Next and Qwen3-Coder-Next",
    .features = "gated DeltaNet, gated attention, experts with a shared one",
    .checkpoints = kCheckpoints,
    .rewrite = rewrite,
};

}  // namespace mlxx::models::qwen3_next
