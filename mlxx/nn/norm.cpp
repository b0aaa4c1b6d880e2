#include "mlxx/nn/norm.h"

#include "mlxx/kernels/layer_norm/layer_norm.h"
#include "mlxx/kernels/rms_norm/rms_norm.h"
#include "mlxx/kernels/rms_norm/trained_rms_norm.h"
#include "mlxx/nn/training_rows.h"

namespace mlxx::nn {

Norm::Norm(int size, const NormSpec& spec)
    : weight_({size}, Parameter::Kind::tensor), spec_(spec) {
  if (spec.bias) {
    bias_.emplace(mx::Shape{size}, Parameter::Kind::tensor);
  }
}

mx::array Norm::operator()(const mx::array& x) const {
  using Kind = NormSpec::Kind;
  mx::array weight = weight_.value();
  if (spec_.kind == Kind::rms_plus_one || spec_.kind == Kind::layer_plus_one) {
    // At run time and in the weight's own dtype, as the reference rounds it.
    weight = mx::add(mx::array(1.0f, weight.dtype()), weight);
  }
  if (spec_.kind == Kind::rms || spec_.kind == Kind::rms_plus_one) {
    return training_rows()
        ? kernels::trained_rms_norm(x, weight, spec_.eps, selection_)
        : kernels::rms_norm(x, weight, spec_.eps, selection_);
  }
  return kernels::layer_norm(
      x,
      weight,
      bias_ ? std::optional(bias_->value()) : std::nullopt,
      spec_.eps,
      selection_);
}

void Norm::visit(const std::string& prefix, const ParameterVisitor& visitor) {
  visitor(prefix + ".weight", weight_);
  if (bias_) {
    visitor(prefix + ".bias", *bias_);
  }
}

}  // namespace mlxx::nn
