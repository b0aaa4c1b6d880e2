#pragma once

#include "mlxx/embed/token_rows.h"
#include "mlxx/kernels/attention/ragged_attention.h"

namespace mlxx::embed {

// Rows [T, heads * D] -> [T, heads, D].
inline mx::array split_row_heads(const mx::array& x, int heads) {
  return mx::reshape(x, {x.shape(0), heads, x.shape(1) / heads});
}

// Rows [T, heads, D] -> [T, heads * D].
inline mx::array join_row_heads(const mx::array& x) {
  return mx::reshape(x, {x.shape(0), x.shape(1) * x.shape(2)});
}

}  // namespace mlxx::embed
