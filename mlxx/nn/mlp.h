#pragma once

#include "mlxx/kernels/select.h"
#include "mlxx/nn/linear.h"

namespace mlxx::nn {

// down(silu(gate(x)) * up(x)). Parameters: gate_proj, up_proj, down_proj.
class GatedMlp {
 public:
  GatedMlp(int hidden_size, int intermediate_size, bool bias);
  // Which kernels compute; without a call the plain operations.
  void use(const kernels::Selection& selection) {
    selection_ = selection;
  }
  mx::array operator()(const mx::array& x) const;
  void visit(const std::string& prefix, const ParameterVisitor& visitor);

 private:
  Linear gate_proj_;
  Linear up_proj_;
  Linear down_proj_;
  kernels::Selection selection_;
};

}  // namespace mlxx::nn
