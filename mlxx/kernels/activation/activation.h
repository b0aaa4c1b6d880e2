#pragma once

#include <string_view>

#include "mlxx/core/mlx.h"
#include "mlxx/kernels/select.h"

namespace mlxx::kernels {

// The element-wise functions of feed-forward networks.
enum class Activation {
  silu,       // x * sigmoid(x)
  gelu,       // x / 2 * (1 + erf(x / sqrt(2)))
  gelu_tanh,  // its approximation by tanh (Hendrycks and Gimpel, 2016)
  relu_squared,
};

// x of any shape, in its dtype; the same order of operations as mlx.nn's.
// Differentiable. On the CPU our own kernel computes float32.
mx::array activate(
    const mx::array& x,
    Activation activation,
    const Selection& selection = {});

// activate(gate) * up, both of one shape; one kernel on the CPU.
mx::array gated_activation(
    const mx::array& gate,
    const mx::array& up,
    Activation activation,
    const Selection& selection = {});

// As configs name them: "silu", "swish", "gelu", "gelu_new",
// "gelu_pytorch_tanh", "gelu_fast", "relu2". unsupported, naming `place`, for
// another.
Activation activation_named(std::string_view place, std::string_view name);

std::string_view to_string(Activation activation);

}  // namespace mlxx::kernels
