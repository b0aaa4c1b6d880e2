#pragma once

#include "mlxx/core/mlx.h"

namespace mlxx::kernels {

// table[ids]: [V, E], [...] integers in [0, V) -> [..., E]. Its gradient in the
// table sums the rows of one id in their order and in float32, also on CUDA,
// where MLX's adds them in any order.
mx::array looked_up_rows(const mx::array& table, const mx::array& ids);

}  // namespace mlxx::kernels
