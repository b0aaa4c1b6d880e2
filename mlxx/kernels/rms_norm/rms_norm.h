#pragma once

#include "mlxx/core/mlx.h"
#include "mlxx/kernels/select.h"

namespace mlxx::kernels {

// x / sqrt(mean(x^2) + eps) * weight over the last axis. x [..., n], weight
// [n]; dtype as MLX promotes them. Differentiable in both. Fallback:
// mx::fast::rms_norm.
mx::array rms_norm(
    const mx::array& x,
    const mx::array& weight,
    float eps,
    const Selection& selection);

}  // namespace mlxx::kernels
