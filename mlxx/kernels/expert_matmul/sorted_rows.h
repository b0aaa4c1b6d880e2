#pragma once

#include "mlxx/core/mlx.h"

namespace mlxx::kernels {

// Rows [R, in] or [R, 1, in] as [R, 1, in] for mx::gather_mm with sorted
// indices. MLX's grouped product (0.32.4, CUDA; MLX's issue 4253) takes the
// stride of the axis of length 1 for that from row to row, which is 1 after
// expand_dims: silently wrong. Here it is `in`.
inline mx::array sorted_rows(const mx::array& rows) {
  bool apart = rows.ndim() == 3 && rows.shape(1) == 1;
  mx::array flat = apart ? mx::flatten(rows, 0, 1) : rows;
  return flat.ndim() == 2 ? mx::unflatten(flat, 0, {flat.shape(0), 1}) : rows;
}

}  // namespace mlxx::kernels
