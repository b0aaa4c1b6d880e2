#pragma once

#include "mlxx/core/array_function.h"

namespace mlxx {

// Errors of both classes. What the given function throws comes out as it is,
// the same object. What MLX throws while it walks the graph backwards becomes
// an Error that keeps MLX's words: unsupported where an operation has no
// gradient, out_of_memory where an allocation failed. A failed call leaves the
// object as it was. Both may be used inside each other and inside a compiled
// function; results are lazy.

// A loss and its gradients in some of its arguments. Reference: MLX's
// value_and_grad, which takes the first of several outputs silently and gives
// the gradients in ascending order of their indices.
class ValueAndGrad {
 public:
  struct Result {
    mx::array loss;                    // as `loss` returned it
    std::vector<mx::array> gradients;  // one per index, in the list's order
  };

  // loss(arguments) returns exactly one array, 0-d and real floating.
  // `indices` of the arguments to differentiate in: at least one, none
  // negative or twice (else invalid_request).
  ValueAndGrad(ArrayFunction loss, std::vector<int> indices);

  // Differentiated arguments are floating or complex; each gradient has the
  // shape and dtype of its argument, zeros where the loss does not depend on
  // it. invalid_request: an index past the arguments, an argument of another
  // dtype, a loss that is not one scalar.
  Result apply(const std::vector<mx::array>& arguments) const;

 private:
  ArrayFunction loss_;
  std::vector<int> indices_;
};

// A function pulled back along given cotangents: the backward pass of one
// segment of a network, without a scalar made up for it. Reference: MLX's vjp,
// which gives an output's cotangent to the next one where an output is a
// stop_gradient, and drops one where two outputs are the same array.
class Vjp {
 public:
  struct Result {
    std::vector<mx::array> outputs;
    std::vector<mx::array> cotangents;  // one per primal
  };

  // function(primals) returns exactly `output_count` floating or complex
  // arrays; at least 1 (else invalid_request).
  Vjp(ArrayFunction function, int output_count);

  // One cotangent per output, of its shape; converted to its dtype. Primals
  // are floating or complex (others belong in the function's captures); each
  // gets a cotangent of its shape and dtype, zeros where no output depends on
  // it. invalid_request: anything else, a complex cotangent of a real output.
  Result apply(
      const std::vector<mx::array>& primals,
      const std::vector<mx::array>& cotangents) const;

 private:
  ArrayFunction function_;
  int output_count_;
};

}  // namespace mlxx
