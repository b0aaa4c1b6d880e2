// LFM2 with experts: gated short convolutions and a few attention layers; all
// but the first layers have experts, routed by sigmoid. Reference: mlx-lm
// 0.32.2, models/lfm2_moe.py.
#include "mlxx/models/expert_layers.h"
#include "mlxx/models/lfm2_layers.h"
#include "mlxx/models/recurrent_tensors.h"
#include "mlxx/models/registry.h"
#include "mlxx/nn/mixer_layer.h"
#include "mlxx/nn/sparse_mlp.h"

namespace mlxx::models::lfm2_moe {

extern const ModelInfo kInfo;

namespace {

// Added to the sum of the chosen weights before they are divided by it.
constexpr float kSumEpsilon = 1e-6f;

nn::SparseMlpSpec read_experts(
    const DecoderConfig& config,
    const DecoderSpec& spec) {
  nn::SparseMlpSpec sparse;
  sparse.experts = {
      .experts = config.size("num_experts"),
      .hidden_size = spec.hidden_size,
      .intermediate_size = config.size("moe_intermediate_size")};
  nn::BiasedSigmoidOptions options;
  options.top_k = static_cast<int>(
      config.view().integer("num_experts_per_tok", 1, sparse.experts.experts));
  options.side = nn::TopK::last;
  options.scale = config.number_or("routed_scaling_factor", 1);
  if (config.view().boolean("norm_topk_prob")) {
    options.renormalize_epsilon = kSumEpsilon;
  }
  sparse.route = [options](const nn::RouterInput& in) {
    return nn::biased_sigmoid(in.logits, in.correction, in.dtype, options);
  };
  if (config.view().boolean("use_expert_bias")) {
    sparse.correction_name = "expert_bias";
  }
  return sparse;
}

std::unique_ptr<Model> make(const hub::Checkpoint& checkpoint) {
  DecoderConfig config(checkpoint);
  DecoderSpec spec = read_lfm2(config);
  nn::LayerSpec network = spec.layers.front();
  network.intermediate_size = config.size("intermediate_size");
  auto dense = config.view().integer("num_dense_layers", 0, 4096);
  auto sparse = read_experts(config, spec);
  auto layers = lfm2_layers(
      config,
      spec,
      [&](int layer) -> std::unique_ptr<nn::FeedForward> {
        if (layer < dense) {
          return std::make_unique<nn::MlpNetwork>(network);
        }
        return std::make_unique<nn::SparseMlp>(sparse);
      });
  return std::make_unique<DecoderModel>(std::move(spec), std::move(layers));
}

void rewrite(hub::TensorRewrite& tensors) {
  turn_convolutions(tensors, "conv.weight");
  tensors.replace_in_names("w1.weight", "gate_proj.weight");
  tensors.replace_in_names("w2.weight", "down_proj.weight");
  tensors.replace_in_names("w3.weight", "up_proj.weight");
  stack_experts(
      tensors,
      "model.layers.{}.feed_forward.experts",
      "model.layers.{}.feed_forward.switch_mlp",
      "num_experts",
      ExpertNames::spoken);
}

constexpr std::string_view kCheckpoints[] = {
    "LiquidAI/LFM2-8B-A1B",
};

constexpr std::string_view kTinyConfig = R"({
  "model_type": "lfm2_moe", "vocab_size": 96, "hidden_size": 64,
  "intermediate_size": 96, "moe_intermediate_size": 32,
  "num_hidden_layers": 3, "num_dense_layers": 1, "num_experts": 4,
  "num_experts_per_tok": 2, "norm_topk_prob": true, "use_expert_bias": true,
  "num_attention_heads": 4, "num_key_value_heads": 2,
  "max_position_embeddings": 512, "norm_eps": 1e-05, "conv_bias": false,
  "conv_L_cache": 3, "rope_theta": 10000.0,
  "layer_types": ["conv", "full_attention", "conv"]
})";

}  // namespace

constinit const ModelInfo kInfo = {
    .model_type = "lfm2_moe",
    .aliases = {},
    .make = make,
    .tiny_config = kTinyConfig,
    .notes = "LFM2 with experts",
    .features = "gated short convolutions, few attention layers, experts",
    .checkpoints = kCheckpoints,
    .rewrite = rewrite,
};

}  // namespace mlxx::models::lfm2_moe
