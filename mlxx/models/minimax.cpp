// MiniMax M2: sigmoid scores with a correction that takes part in the choice
// only; queries and keys normed over their whole width, a part of a head
// rotated. Reference: mlx-lm 0.32.2, models/minimax.py.
#include "mlxx/models/expert_layers.h"
#include "mlxx/models/registry.h"

namespace mlxx::models::minimax {

extern const ModelInfo kInfo;

namespace {

std::unique_ptr<Model> make(const hub::Checkpoint& checkpoint) {
  DecoderConfig config(checkpoint);
  config.require_activation({"silu"});
  DecoderSpec spec = config.decoder();
  int head_size = spec.layers.front().head_size;
  auto dims =
      static_cast<int>(config.view().integer("rotary_dim", 2, head_size));
  if (dims % 2 != 0) {
    config.view().fail_at(
        "rotary_dim",
        fmt::format("is {}, which makes no pairs to rotate", dims));
  }
  auto rope = config.plain_rope(dims, config.rope_base(10000));
  bool normed = config.flag_or("use_qk_norm", true);
  spec.for_each_layer([&](nn::LayerSpec& layer, int) {
    layer.qk_norm = normed ? nn::QkNorm::whole_width : nn::QkNorm::none;
    layer.rope = rope;
    layer.names.mlp = "block_sparse_moe";
  });
  auto counts = read_expert_counts(config, "num_local_experts");
  nn::SparseMlpSpec mixture;
  mixture.experts = {
      .experts = counts.experts,
      .hidden_size = spec.hidden_size,
      .intermediate_size = spec.layers.front().intermediate_size};
  mixture.float32_router = true;
  mixture.correction_name = "e_score_correction_bias";
  mixture.route = [k = counts.per_token](const nn::RouterInput& input) {
    return nn::biased_sigmoid(
        input.logits,
        input.correction,
        input.dtype,
        {.top_k = k,
         .side = nn::TopK::first_of_negated,
         .renormalize_epsilon = 1e-20f});
  };
  auto layers = layers_with_networks(spec, [&](int) {
    return std::make_unique<nn::SparseMlp>(mixture);
  });
  return std::make_unique<DecoderModel>(std::move(spec), std::move(layers));
}

void rewrite(hub::TensorRewrite& tensors) {
  stack_experts(
      tensors,
      "model.layers.{}.block_sparse_moe.experts",
      "model.layers.{}.block_sparse_moe.switch_mlp",
      "num_local_experts",
      ExpertNames::numbered);
}

constexpr std::string_view kAliases[] = {"minimax_m2"};

constexpr std::string_view kCheckpoints[] = {
    "MiniMaxAI/MiniMax-M2",
};

constexpr std::string_view kTinyConfig = R"({
  "model_type": "minimax", "vocab_size": 96, "hidden_size": 64,
  "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
  "num_key_value_heads": 2, "head_dim": 32, "rms_norm_eps": 1e-06,
  "max_position_embeddings": 512, "rope_theta": 5000000.0, "rotary_dim": 16,
  "tie_word_embeddings": false, "num_local_experts": 8,
  "num_experts_per_tok": 2, "shared_intermediate_size": 0,
  "use_qk_norm": true
})";

}  // namespace

constinit const ModelInfo kInfo = {
    .model_type = "minimax",
    .aliases = kAliases,
    .make = make,
    .tiny_config = kTinyConfig,
    .notes = "MiniMax M2",
    .features = "experts chosen by corrected sigmoid scores, partial rope",
    .checkpoints = kCheckpoints,
    .rewrite = rewrite,
};

}  // namespace mlxx::models::minimax
