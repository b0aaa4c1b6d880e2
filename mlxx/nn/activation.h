#pragma once

#include "mlxx/core/mlx.h"

namespace mlxx::nn {

// silu(gate) * up, compiled as one function as in mlx-lm: on a GPU a fused
// kernel rounds differently from separate ones.
mx::array swiglu(const mx::array& gate, const mx::array& up);

}  // namespace mlxx::nn
