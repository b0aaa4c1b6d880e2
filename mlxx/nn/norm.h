#pragma once

#include "mlxx/core/parameters.h"
#include "mlxx/kernels/select.h"
#include "mlxx/nn/layer_spec.h"

namespace mlxx::nn {

// Normalises the last axis; means and variances are in float32.
// Parameters: weight and, if the spec has one, bias.
class Norm {
 public:
  Norm(int size, const NormSpec& spec);
  // Which kernels compute; without a call the plain operations.
  void use(const kernels::Selection& selection) {
    selection_ = selection;
  }
  mx::array operator()(const mx::array& x) const;
  void visit(const std::string& prefix, const ParameterVisitor& visitor);

  const NormSpec& spec() const {
    return spec_;
  }

 private:
  Parameter weight_;               // [size]
  std::optional<Parameter> bias_;  // [size]
  NormSpec spec_;
  kernels::Selection selection_;
};

}  // namespace mlxx::nn
