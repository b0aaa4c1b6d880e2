#pragma once

#include "mlxx/nn/depthwise_conv.h"
#include "mlxx/nn/linear.h"
#include "mlxx/nn/mixer_layer.h"

namespace mlxx::nn {

// LFM2's gated convolution: with B, C, h = in_proj(x),
// out_proj(C * conv(B * h)). Parameters: in_proj, conv, out_proj. Reference:
// mlx-lm 0.32.2, models/lfm2.py, ShortConv.
class ShortConvMixer : public TokenMixer {
 public:
  ShortConvMixer(int hidden_size, int width, bool bias);

  mx::array operator()(
      const mx::array& x,
      const kernels::AttentionMask& mask,
      cache::LayerCache& cache) const override;
  StateSpec state() const override {
    return {.kind = StateSpec::Kind::recurrent, .slots = 1};
  }
  void visit(const std::string& prefix, const ParameterVisitor& visitor)
      override;
  void use(const kernels::Selection& selection) override {
    conv_.use(selection);
  }

 private:
  Linear in_proj_;
  DepthwiseConv conv_;
  Linear out_proj_;
};

}  // namespace mlxx::nn
