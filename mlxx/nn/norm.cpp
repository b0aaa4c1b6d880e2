#include "mlxx/nn/norm.h"

#include "mlxx/kernels/rms_norm/rms_norm.h"

namespace mlxx::nn {

RMSNorm::RMSNorm(int size, float eps)
    : weight_({size}, Parameter::Kind::tensor), eps_(eps) {}

mx::array RMSNorm::operator()(const mx::array& x) const {
  return kernels::rms_norm(x, weight_.value(), eps_, selection_);
}

void RMSNorm::visit(
    const std::string& prefix,
    const ParameterVisitor& visitor) {
  visitor(prefix + ".weight", weight_);
}

LayerNorm::LayerNorm(int size, float eps, bool bias)
    : weight_({size}, Parameter::Kind::tensor), eps_(eps) {
  if (bias) {
    bias_.emplace(mx::Shape{size}, Parameter::Kind::tensor);
  }
}

mx::array LayerNorm::operator()(const mx::array& x) const {
  return mx::fast::layer_norm(
      x,
      weight_.value(),
      bias_ ? std::optional(bias_->value()) : std::nullopt,
      eps_);
}

void LayerNorm::visit(
    const std::string& prefix,
    const ParameterVisitor& visitor) {
  visitor(prefix + ".weight", weight_);
  if (bias_) {
    visitor(prefix + ".bias", *bias_);
  }
}

}  // namespace mlxx::nn
