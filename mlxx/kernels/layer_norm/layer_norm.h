#pragma once

#include <optional>

#include "mlxx/core/mlx.h"
#include "mlxx/kernels/select.h"

namespace mlxx::kernels {

// (x - mean) / sqrt(variance + eps) * weight (+ bias) over the last axis. x
// [..., n], weight and bias [n]; dtype as MLX promotes them. Differentiable in
// all three. Fallback: mx::fast::layer_norm. On the CPU our own kernel computes
// float32, each row by itself.
mx::array layer_norm(
    const mx::array& x,
    const mx::array& weight,
    const std::optional<mx::array>& bias,
    float eps,
    const Selection& selection);

}  // namespace mlxx::kernels
