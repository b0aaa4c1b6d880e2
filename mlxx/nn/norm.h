#pragma once

#include "mlxx/core/parameters.h"
#include "mlxx/kernels/select.h"

namespace mlxx::nn {

// x / sqrt(mean(x^2) + eps) * weight over the last axis, the mean in float32.
class RMSNorm {
 public:
  RMSNorm(int size, float eps);
  // Which kernels compute; without a call the plain operations.
  void use(const kernels::Selection& selection) {
    selection_ = selection;
  }
  mx::array operator()(const mx::array& x) const;
  void visit(const std::string& prefix, const ParameterVisitor& visitor);

 private:
  Parameter weight_;  // [size]
  float eps_;
  kernels::Selection selection_;
};

// (x - mean) / sqrt(var + eps) * weight + bias over the last axis.
class LayerNorm {
 public:
  LayerNorm(int size, float eps, bool bias);
  mx::array operator()(const mx::array& x) const;
  void visit(const std::string& prefix, const ParameterVisitor& visitor);

 private:
  Parameter weight_;               // [size]
  std::optional<Parameter> bias_;  // [size]
  float eps_;
};

}  // namespace mlxx::nn
