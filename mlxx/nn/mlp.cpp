#include "mlxx/nn/mlp.h"

#include "mlxx/kernels/swiglu/trained_swiglu.h"
#include "mlxx/nn/training_rows.h"

namespace mlxx::nn {

Mlp::Mlp(const LayerSpec& spec)
    : names_(spec.names),
      activation_(spec.activation),
      up_(spec.hidden_size, spec.intermediate_size, spec.mlp_bias),
      down_(spec.intermediate_size, spec.hidden_size, spec.mlp_bias) {
  if (!names_.gate.empty()) {
    gate_.emplace(spec.hidden_size, spec.intermediate_size, spec.mlp_bias);
  }
}

mx::array Mlp::operator()(const mx::array& x) const {
  if (!gate_) {
    return down_(kernels::activate(up_(x), activation_, selection_));
  }
  if (training_rows() && activation_ == kernels::Activation::silu) {
    return down_(kernels::trained_swiglu((*gate_)(x), up_(x), selection_));
  }
  return down_(
      kernels::gated_activation((*gate_)(x), up_(x), activation_, selection_));
}

void Mlp::visit(const std::string& prefix, const ParameterVisitor& visitor) {
  if (gate_) {
    gate_->visit(prefix + "." + names_.gate, visitor);
  }
  up_.visit(prefix + "." + names_.up, visitor);
  down_.visit(prefix + "." + names_.down, visitor);
}

}  // namespace mlxx::nn
