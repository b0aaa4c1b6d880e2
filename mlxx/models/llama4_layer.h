#pragma once

#include "mlxx/nn/attention.h"
#include "mlxx/nn/block.h"

namespace mlxx::models {

// What a layer of Llama 4 has beside a plain block. Its LayerSpec gives sizes,
// rope (null: positions are not rotated), biases and the norm.
struct Llama4LayerSpec {
  nn::LayerSpec block;
  // Queries and keys are normed without weights.
  enum class UnitNorm { none, before_rope, after_rope };
  UnitNorm unit_norm = UnitNorm::none;
  float unit_norm_eps = 1e-6f;
  // Queries times log(floor((position + 1) / floor_scale) + 1) * attention
  // scale + 1, in layers without rotation.
  bool temperature = false;
  float floor_scale = 8192;
  float temperature_scale = 0.1f;
  int chunk = 0;  // a query sees the tokens of its chunk only; 0: all
};

// Attention, then a feed-forward network, each of normed input and added to
// what came in. Parameters: those of a TransformerBlock with the network under
// feed_forward.
class Llama4Layer : public nn::DecoderLayer {
 public:
  // `network` null: the Mlp of the spec's block.
  Llama4Layer(
      const Llama4LayerSpec& spec,
      std::unique_ptr<nn::FeedForward> network);

  mx::array operator()(
      const mx::array& h,
      const kernels::AttentionMask& mask,
      cache::LayerCache& cache) const override;
  nn::StateSpec state() const override;
  void visit(const std::string& prefix, const ParameterVisitor& visitor)
      override;
  void use(const kernels::Selection& selection) override;

 private:
  mx::array attend(
      const mx::array& x,
      const kernels::AttentionMask& mask,
      cache::KVCache& cache) const;

  Llama4LayerSpec spec_;
  nn::Linear q_;
  nn::Linear k_;
  nn::Linear v_;
  nn::Linear o_;
  std::optional<nn::Mlp> mlp_;
  std::unique_ptr<nn::FeedForward> network_;
  nn::Norm before_attention_;
  nn::Norm before_mlp_;
  kernels::Selection selection_;
};

// One expert for each token, which meets it multiplied with the sigmoid of its
// score, and a shared one. Parameters: router, experts, shared_expert.
std::unique_ptr<nn::FeedForward>
make_llama4_experts(int hidden_size, int intermediate_size, int experts);

}  // namespace mlxx::models
