#include "mlxx/nn/linear.h"

#include "mlxx/kernels/quantized_matmul/quantized_matmul.h"
#include "mlxx/nn/row_adapters.h"

namespace mlxx::nn {

Linear::Linear(int in_features, int out_features, bool bias)
    : weight_({out_features, in_features}, Parameter::Kind::matrix) {
  if (bias) {
    bias_.emplace(mx::Shape{out_features}, Parameter::Kind::tensor);
  }
}

mx::array Linear::operator()(const mx::array& x) const {
  if (const RowAdapters* adapters = active_adapters()) {
    auto plain = [&](bool with_bias) { return product(x, with_bias); };
    if (auto y = adapters->product(weight_, bias_, x, plain)) {
      return *y;
    }
  }
  return product(x, true);
}

mx::array Linear::product(const mx::array& x, bool with_bias) const {
  bool biased = bias_ && with_bias;
  if (weight_.packed() || weight_.quantization()) {
    mx::array y = kernels::quantized_matmul(x, weight_);
    return biased ? mx::add(y, bias_->value()) : y;
  }
  if (const auto& product = weight_.product()) {
    mx::array y = (*product)(x, weight_.value());
    return biased ? mx::add(y, bias_->value()) : y;
  }
  mx::array transposed = mx::transpose(weight_.value());
  return biased ? mx::addmm(bias_->value(), x, transposed)
                : mx::matmul(x, transposed);
}

void Linear::visit(const std::string& prefix, const ParameterVisitor& visitor) {
  visitor(prefix + ".weight", weight_);
  if (bias_) {
    visitor(prefix + ".bias", *bias_);
  }
}

}  // namespace mlxx::nn
