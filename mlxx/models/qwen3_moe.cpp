// Qwen 3 with experts in some or all layers: a softmax over all of them,
// normed queries and keys. Reference: mlx-lm 0.32.2, models/qwen3_moe.py.
#include <algorithm>

#include "mlxx/models/expert_layers.h"
#include "mlxx/models/registry.h"

namespace mlxx::models::qwen3_moe {

extern const ModelInfo kInfo;

namespace {

bool is_sparse(const DecoderConfig& config, int layer) {
  auto dense = config.view().numbers_or_empty("mlp_only_layers");
  return std::ranges::find(dense, layer) == dense.end() &&
      (layer + 1) % config.size_or("decoder_sparse_step", 1) == 0;
}

std::unique_ptr<Model> make(const hub::Checkpoint& checkpoint) {
  DecoderConfig config(checkpoint);
  config.require_activation({"silu"});
  DecoderSpec spec = config.decoder();
  // The reference accepts rope_scaling and does not use it.
  auto rope =
      config.plain_rope(spec.layers.front().head_size, config.rope_base(10000));
  spec.for_each_layer([&](nn::LayerSpec& layer, int) {
    layer.qk_norm = nn::QkNorm::per_head;
    layer.rope = rope;
  });
  auto counts = read_expert_counts(config, "num_experts");
  nn::SparseMlpSpec mixture;
  mixture.experts = {
      .experts = counts.experts,
      .hidden_size = spec.hidden_size,
      .intermediate_size = config.size("moe_intermediate_size")};
  mixture.route = [k = counts.per_token,
                   renormalize = config.flag_or("norm_topk_prob", false)](
                      const nn::RouterInput& input) {
    return nn::softmax_then_top_k(input.logits, k, nn::TopK::last, renormalize);
  };
  auto layers = layers_with_networks(
      spec,
      [&](int layer) -> std::unique_ptr<nn::FeedForward> {
        return is_sparse(config, layer)
            ? std::make_unique<nn::SparseMlp>(mixture)
            : nullptr;
      });
  return std::make_unique<DecoderModel>(std::move(spec), std::move(layers));
}

void rewrite(hub::TensorRewrite& tensors) {
  stack_experts(
      tensors,
      "model.layers.{}.mlp.experts",
      "model.layers.{}.mlp.switch_mlp",
      "num_experts",
      ExpertNames::spoken);
}

constexpr std::string_view kCheckpoints[] = {
    "Qwen/Qwen3-30B-A3B-Instruct-2507",
    "Qwen/Qwen3-235B-A22B-Instruct-2507",
    "Qwen/Qwen3-Coder-30B-A3B-Instruct",
};

constexpr std::string_view kTinyConfig = R"({
  "model_type": "qwen3_moe", "vocab_size": 96, "hidden_size": 64,
  "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4,
  "num_key_value_heads": 2, "head_dim": 32, "rms_norm_eps": 1e-06,
  "max_position_embeddings": 512, "rope_theta": 1000000.0,
  "tie_word_embeddings": false, "num_experts": 8, "num_experts_per_tok": 2,
  "moe_intermediate_size": 32, "norm_topk_prob": true,
  "decoder_sparse_step": 1, "mlp_only_layers": [1]
})";

}  // namespace

constinit const ModelInfo kInfo = {
    .model_type = "qwen3_moe",
    .aliases = {},
    .make = make,
    .tiny_config = kTinyConfig,
    .notes = "Qwen 3 with experts",
    .features = "experts, softmax over all of them, qk-norm",
    .checkpoints = kCheckpoints,
    .rewrite = rewrite,
};

}  // namespace mlxx::models::qwen3_moe
