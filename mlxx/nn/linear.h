#pragma once

#include "mlxx/core/parameters.h"

namespace mlxx::nn {

// x @ weight.T (+ bias). A dense weight with a bias is one addmm; a quantized
// one adds the bias after the product: as mlx.nn does, since the two round
// differently. A kernel's product adds it afterwards as well.
class Linear {
 public:
  Linear(int in_features, int out_features, bool bias);

  // [..., in] -> [..., out]; by the adapters of the scope, if there is one
  // (nn/row_adapters.h).
  mx::array operator()(const mx::array& x) const;

  // weight, and bias if there is one.
  void visit(const std::string& prefix, const ParameterVisitor& visitor);

  const Parameter& weight() const {
    return weight_;
  }
  const std::optional<Parameter>& bias() const {
    return bias_;
  }

 private:
  mx::array product(const mx::array& x, bool with_bias) const;

  Parameter weight_;               // [out, in]
  std::optional<Parameter> bias_;  // [out]
};

}  // namespace mlxx::nn
