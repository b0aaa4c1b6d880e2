#include "mlxx/nn/linear.h"

#include "mlxx/kernels/quantized_matmul/quantized_matmul.h"

namespace mlxx::nn {

Linear::Linear(int in_features, int out_features, bool bias)
    : weight_({out_features, in_features}, Parameter::Kind::matrix) {
  if (bias) {
    bias_.emplace(mx::Shape{out_features}, Parameter::Kind::tensor);
  }
}

mx::array Linear::operator()(const mx::array& x) const {
  if (weight_.packed() || weight_.quantization()) {
    mx::array y = kernels::quantized_matmul(x, weight_);
    return bias_ ? mx::add(y, bias_->value()) : y;
  }
  if (const auto& product = weight_.product()) {
    mx::array y = (*product)(x, weight_.value());
    return bias_ ? mx::add(y, bias_->value()) : y;
  }
  mx::array transposed = mx::transpose(weight_.value());
  return bias_ ? mx::addmm(bias_->value(), x, transposed)
               : mx::matmul(x, transposed);
}

void Linear::visit(const std::string& prefix, const ParameterVisitor& visitor) {
  visitor(prefix + ".weight", weight_);
  if (bias_) {
    visitor(prefix + ".bias", *bias_);
  }
}

}  // namespace mlxx::nn
