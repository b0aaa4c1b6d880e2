#pragma once

#include "mlxx/cache/recurrent.h"
#include "mlxx/core/parameters.h"
#include "mlxx/kernels/select.h"

namespace mlxx::nn {

// The short causal convolution before a scan, with its last inputs in a slot
// of a recurrent cache. Parameters: weight [C, W, 1], and bias if there is one.
class DepthwiseConv {
 public:
  DepthwiseConv(int channels, int width, bool bias, bool silu);

  // Which kernels compute; without a call the plain operations.
  void use(const kernels::Selection& selection) {
    selection_ = selection;
  }
  // x [B, L, C] -> [B, L, C]. Tokens that do not count are zeros to it.
  mx::array
  operator()(const mx::array& x, cache::RecurrentCache& cache, int slot) const;
  void visit(const std::string& prefix, const ParameterVisitor& visitor);

 private:
  Parameter weight_;
  std::optional<Parameter> bias_;
  bool silu_;
  kernels::Selection selection_;
};

}  // namespace mlxx::nn
