#pragma once

#include "mlxx/core/mlx.h"
#include "mlxx/kernels/select.h"

namespace mlxx::kernels {

// silu(gate) * up, both of one shape. Differentiable in both. Fallback:
// compiled as one function as in mlx-lm, since on a GPU a fused kernel rounds
// differently from separate ones.
mx::array
swiglu(const mx::array& gate, const mx::array& up, const Selection& selection);

}  // namespace mlxx::kernels
