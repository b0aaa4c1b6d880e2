#pragma once

#include "mlxx/nn/depthwise_conv.h"
#include "mlxx/nn/linear.h"
#include "mlxx/nn/mixer_layer.h"

namespace mlxx::nn {

struct GatedDeltaSpec {
  int hidden_size = 0;
  int key_heads = 0;
  int value_heads = 0;  // a multiple of key_heads
  int key_size = 0;
  int value_size = 0;
  int conv_width = 4;
  float norm_eps = 0;
  // One projection for queries, keys, values and gate and one for both gates
  // of the rule, in the order of the key heads (Qwen3-Next), not four.
  bool packed = false;

  int keys_width() const {
    return key_heads * key_size;
  }
  int values_width() const {
    return value_heads * value_size;
  }
  int conv_channels() const {
    return 2 * keys_width() + values_width();
  }
};

// A gated DeltaNet: queries, keys and values through a short convolution, the
// gated delta rule, a norm of each head, a gate, a projection back. Parameters:
// in_proj_qkv, in_proj_z, in_proj_b, in_proj_a or in_proj_qkvz, in_proj_ba;
// conv1d, dt_bias, A_log, norm, out_proj. Slots: the convolution's inputs, the
// rule's state. Reference: mlx-lm 0.32.2, models/qwen3_next.py, qwen3_5.py.
class GatedDeltaNet : public TokenMixer {
 public:
  explicit GatedDeltaNet(const GatedDeltaSpec& spec);

  mx::array operator()(
      const mx::array& x,
      const kernels::AttentionMask& mask,
      cache::LayerCache& cache) const override;
  StateSpec state() const override {
    return {.kind = StateSpec::Kind::recurrent, .slots = 2};
  }
  void visit(const std::string& prefix, const ParameterVisitor& visitor)
      override;
  void use(const kernels::Selection& selection) override;

 private:
  struct Projected {
    mx::array qkv;  // [B, L, conv_channels]
    mx::array z;    // [B, L, Hv, Dv]
    mx::array b;    // [B, L, Hv]
    mx::array a;    // [B, L, Hv]
  };
  Projected project(const mx::array& x) const;
  Projected project_packed(const mx::array& x) const;
  // `factors` is the scale for each number, for kernels.
  mx::array
  normalize(const mx::array& x, double scale, const mx::array& factors) const;
  mx::array gated_norm(const mx::array& y, const mx::array& gate) const;

  GatedDeltaSpec spec_;
  std::vector<std::pair<std::string, Linear>> in_;  // by name
  DepthwiseConv conv1d_;
  Parameter dt_bias_;  // [Hv]
  Parameter a_log_;    // [Hv]
  Norm norm_;          // [Dv]
  Linear out_proj_;
  mx::array query_factors_{0.0f};  // [Dk] once use() was called
  mx::array key_factors_{0.0f};
  kernels::Selection selection_;
};

}  // namespace mlxx::nn
