#pragma once

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "mlxx/core/array_function.h"
#include "mlxx/core/parameters.h"

namespace mlxx {

// Shows a module's parameters, always the same ones in the same order:
//   [&](const ParameterVisitor& visitor) { mlp.visit("mlp", visitor); }
// The module must outlive whoever holds it.
using ParameterTree = std::function<void(const ParameterVisitor&)>;

// Which parameters are left out.
using FrozenParameters = std::function<bool(const std::string& name)>;

// Exactly these. invalid_request for a name that is not in the tree.
FrozenParameters frozen_names(
    const ParameterTree& tree,
    std::set<std::string> names);

struct ParameterGradient {
  std::string name;
  mx::array gradient;  // of the parameter's shape and dtype
};

// A loss and its gradients in a module's parameters. While the loss runs, they
// hold what MLX traces; afterwards, and if it throws, what they held before.
// Reference: mlx.nn.value_and_grad.
//
// Everything that is not frozen must be floating and in MLX's dense form.
// invalid_request, naming the parameter: packed or quantized, an integer
// tensor, never set, or twice in the tree (by name or as an object); also if
// nothing is left to train. Otherwise errors are those of ValueAndGrad.
// Parameters are looked up at each call, so that a step may have replaced them.
class ParameterGradients {
 public:
  struct Result {
    mx::array loss;
    std::vector<ParameterGradient> gradients;  // in the tree's order
  };

  // loss(inputs) uses the module and returns exactly one scalar. Without
  // `frozen` every parameter is trained.
  ParameterGradients(
      ParameterTree tree,
      ArrayFunction loss,
      FrozenParameters frozen = nullptr);

  // `inputs` (a batch) is handed to the loss; any dtype.
  Result apply(const std::vector<mx::array>& inputs) const;

 private:
  ParameterTree tree_;
  ArrayFunction loss_;
  FrozenParameters frozen_;
};

}  // namespace mlxx
