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

std::vector<mx::array> Mlp::widened(const mx::array& x) const {
  if (!gate_) {
    return {up_(x)};
  }
  mx::array gate = (*gate_)(x);
  return {gate, up_(x)};
}

mx::array Mlp::narrowed(const std::vector<mx::array>& wide) const {
  if (wide.size() == 1) {
    return down_(kernels::activate(wide[0], activation_, selection_));
  }
  if (training_rows() && activation_ == kernels::Activation::silu) {
    return down_(kernels::trained_swiglu(wide[0], wide[1], selection_));
  }
  return down_(
      kernels::gated_activation(wide[0], wide[1], activation_, selection_));
}

void Mlp::visit(const std::string& prefix, const ParameterVisitor& visitor) {
  if (gate_) {
    gate_->visit(prefix + "." + names_.gate, visitor);
  }
  up_.visit(prefix + "." + names_.up, visitor);
  down_.visit(prefix + "." + names_.down, visitor);
}

}  // namespace mlxx::nn
