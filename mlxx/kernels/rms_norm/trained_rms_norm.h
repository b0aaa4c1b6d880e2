#pragma once

#include "mlxx/core/mlx.h"
#include "mlxx/kernels/select.h"

namespace mlxx::kernels {

// rms_norm() where a gradient is wanted. On CUDA rows of many numbers are
// computed by a kernel of our own, several times faster than MLX's; rounded as
// by that one, the sum of squares in another order.
mx::array trained_rms_norm(
    const mx::array& x,
    const mx::array& weight,
    float eps,
    const Selection& selection = {});

}  // namespace mlxx::kernels
