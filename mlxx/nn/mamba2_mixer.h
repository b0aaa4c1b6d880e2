#pragma once

#include "mlxx/nn/depthwise_conv.h"
#include "mlxx/nn/linear.h"
#include "mlxx/nn/mixer_layer.h"

namespace mlxx::nn {

// How a Mamba2 layer's gate meets what the scan gives.
enum class ScanNorm {
  none,         // silu(gate) * y
  after_gate,   // norm(silu(gate) * y)
  before_gate,  // silu(gate) * norm(y)
  groups,       // weight * the norm of each of `groups` parts of silu(gate) * y
};

struct Mamba2Spec {
  int hidden_size = 0;
  int heads = 0;
  int head_size = 0;
  int groups = 1;
  int state_size = 0;
  int conv_width = 4;
  bool conv_bias = true;
  bool in_bias = false;
  bool out_bias = false;
  float dt_lowest = 0;
  float dt_highest = 0;
  ScanNorm norm = ScanNorm::after_gate;
  float norm_eps = 0;
  // D is rounded to the dtype of the activations before it is used.
  bool round_skip = false;

  int inner_size() const {
    return heads * head_size;
  }
  int conv_channels() const {
    return inner_size() + 2 * groups * state_size;
  }
};

// A Mamba2 mixer: one projection to gate, convolved inputs and steps, the
// scan, a gated norm, a projection back. Parameters: in_proj, conv1d, dt_bias,
// A_log, D, norm, out_proj. Slots: the convolution's inputs, the scan's state.
// Reference: mlx-lm 0.32.2, models/mamba2.py, falcon_h1.py, nemotron_h.py,
// granitemoehybrid.py.
class Mamba2Mixer : public TokenMixer {
 public:
  explicit Mamba2Mixer(const Mamba2Spec& spec);

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
  mx::array scan(
      const mx::array& convolved,
      const mx::array& dt,
      cache::RecurrentCache& cache) const;
  mx::array gated(const mx::array& y, const mx::array& gate) const;

  Mamba2Spec spec_;
  Linear in_proj_;
  DepthwiseConv conv1d_;
  Parameter dt_bias_;  // [heads]
  Parameter a_log_;    // [heads]
  Parameter d_;        // [heads]
  std::optional<Norm> norm_;
  std::optional<Parameter> group_weight_;  // [inner_size]
  Linear out_proj_;
  kernels::Selection selection_;
};

}  // namespace mlxx::nn
