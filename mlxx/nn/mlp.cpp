#include "mlxx/nn/mlp.h"

#include "mlxx/kernels/swiglu/swiglu.h"

namespace mlxx::nn {

GatedMlp::GatedMlp(int hidden_size, int intermediate_size, bool bias)
    : gate_proj_(hidden_size, intermediate_size, bias),
      up_proj_(hidden_size, intermediate_size, bias),
      down_proj_(intermediate_size, hidden_size, bias) {}

mx::array GatedMlp::operator()(const mx::array& x) const {
  return down_proj_(kernels::swiglu(gate_proj_(x), up_proj_(x), selection_));
}

void GatedMlp::visit(
    const std::string& prefix,
    const ParameterVisitor& visitor) {
  gate_proj_.visit(prefix + ".gate_proj", visitor);
  up_proj_.visit(prefix + ".up_proj", visitor);
  down_proj_.visit(prefix + ".down_proj", visitor);
}

}  // namespace mlxx::nn
