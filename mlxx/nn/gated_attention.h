#pragma once

#include "mlxx/nn/mixer_layer.h"

namespace mlxx::nn {

// Attention whose output is multiplied by sigmoid of a gate, which the query
// projection gives beside each head's query. Norms of queries and keys of each
// head. Parameters: q_proj (twice as wide), k_proj, v_proj, o_proj, q_norm,
// k_norm. Reference: mlx-lm 0.32.2, models/qwen3_next.py, Qwen3NextAttention.
class GatedAttention : public TokenMixer {
 public:
  // Reads sizes, rope, norm and biases of the spec.
  explicit GatedAttention(const LayerSpec& spec);

  mx::array operator()(
      const mx::array& x,
      const kernels::AttentionMask& mask,
      cache::LayerCache& cache) const override;
  StateSpec state() const override {
    return {.kind = StateSpec::Kind::attention, .window = spec_.window};
  }
  void visit(const std::string& prefix, const ParameterVisitor& visitor)
      override;
  void use(const kernels::Selection& selection) override;

 private:
  LayerSpec spec_;
  Linear q_;
  Linear k_;
  Linear v_;
  Linear o_;
  Norm q_norm_;
  Norm k_norm_;
  kernels::Selection selection_;
};

}  // namespace mlxx::nn
