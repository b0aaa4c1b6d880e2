#pragma once

#include <string>

#include "mlxx/core/array_function.h"

namespace mlxx {

// One cotangent per primal, of its shape, from a function's primals, the
// cotangents of its outputs, and those outputs.
using GradientFunction = std::function<std::vector<mx::array>(
    const std::vector<mx::array>& primals,
    const std::vector<mx::array>& cotangents,
    const std::vector<mx::array>& outputs)>;

// `forward` with `gradient` as its gradient, such as a fused kernel with a
// backward pass written by hand. Arrays that `forward` captures get none.
// Reference: MLX's custom_vjp, which does not look at what `gradient` returned
// and reads past the end of a list that is too short.
//
// `name` stands in the errors, all invalid_request: no function; at a call, no
// arguments or no outputs; while a gradient is taken, another number or another
// shape of cotangents than of primals. A cotangent is converted to its primal's
// dtype; that of an integer primal is not read, mx::zeros_like() will do.
ArrayFunction
custom_vjp(std::string name, ArrayFunction forward, GradientFunction gradient);

}  // namespace mlxx
