#pragma once

#include "mlxx/core/mlx.h"
#include "mlxx/kernels/select.h"

namespace mlxx::kernels {

// silu(gate) * up as swiglu(), of two arrays of one shape and dtype, where a
// gradient is wanted: one operation forward and one backward also on a GPU,
// which keep nothing but gate and up. There it is rounded once.
mx::array trained_swiglu(
    const mx::array& gate,
    const mx::array& up,
    const Selection& selection = {});

}  // namespace mlxx::kernels
