// Mixtral: Mistral's blocks with experts, of whose logits the largest go
// through a softmax. Reference: mlx-lm 0.32.2, models/mixtral.py.
#include "mlxx/models/expert_layers.h"
#include "mlxx/models/registry.h"

namespace mlxx::models::mixtral {

extern const ModelInfo kInfo;

namespace {

std::unique_ptr<Model> make(const hub::Checkpoint& checkpoint) {
  DecoderConfig config(checkpoint);
  config.require_activation({"silu"});
  DecoderSpec spec = config.decoder();
  auto rope = config.plain_rope(
      spec.layers.front().head_size,
      config.rope_base(1e6),
      config.flag_or("rope_traditional", false));
  spec.for_each_layer([&](nn::LayerSpec& layer, int) {
    layer.rope = rope;
    layer.names.mlp = "block_sparse_moe";
  });
  auto counts = read_expert_counts(config, "num_local_experts");
  nn::SparseMlpSpec mixture;
  mixture.experts = {
      .experts = counts.experts,
      .hidden_size = spec.hidden_size,
      .intermediate_size = spec.layers.front().intermediate_size};
  mixture.route = [k = counts.per_token](const nn::RouterInput& input) {
    return nn::top_k_then_softmax(
        input.logits,
        k,
        nn::TopK::first_of_negated,
        nn::ChosenSoftmax::precise);
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

constexpr std::string_view kCheckpoints[] = {
    "mistralai/Mixtral-8x7B-Instruct-v0.1",
    "mistralai/Mixtral-8x22B-Instruct-v0.1",
};

constexpr std::string_view kTinyConfig = R"({
  "model_type": "mixtral", "vocab_size": 96, "hidden_size": 64,
  "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
  "num_key_value_heads": 2, "rms_norm_eps": 1e-05,
  "max_position_embeddings": 512, "rope_theta": 1000000.0,
  "tie_word_embeddings": false, "num_local_experts": 4,
  "num_experts_per_tok": 2
})";

}  // namespace

constinit const ModelInfo kInfo = {
    .model_type = "mixtral",
    .aliases = {},
    .make = make,
    .tiny_config = kTinyConfig,
    .notes = "Mixtral",
    .features = "experts, softmax over the chosen ones",
    .checkpoints = kCheckpoints,
    .rewrite = rewrite,
};

}  // namespace mlxx::models::mixtral
