#pragma once

#include "mlxx/core/mlx.h"

namespace mlxx::kernels {

struct RowScores {
  mx::array scores;  // [n] float32
  mx::array change;  // [n, V]: their derivatives in the products
};

// log softmax(softcap(factor * products))[target] of each row, on a GPU in one
// operation of one pass over each row to read and one to write: products [n, V]
// in any floating dtype, targets [n] int32.
RowScores device_scores(
    const mx::array& products,
    const mx::array& targets,
    float factor,
    float softcap);

}  // namespace mlxx::kernels
