#pragma once

#include "mlxx/core/mlx.h"

namespace mlxx {

// |a - b| / |b| in the Frobenius norm; NaN if either has one.
inline float relative_error(const mx::array& a, const mx::array& b) {
  mx::array x = mx::astype(a, mx::float32);
  mx::array y = mx::astype(b, mx::float32);
  mx::array gap = mx::sqrt(mx::sum(mx::square(mx::subtract(x, y))));
  return mx::divide(gap, mx::sqrt(mx::sum(mx::square(y)))).item<float>();
}

// Equal in shape, dtype and every bit (no NaN expected).
inline bool same_bits(const mx::array& a, const mx::array& b) {
  return a.shape() == b.shape() && a.dtype() == b.dtype() &&
      mx::array_equal(a, b).item<bool>();
}

inline mx::array normal(const mx::Shape& shape, uint64_t seed) {
  return mx::random::normal(
      shape,
      mx::float32,
      0.0f,
      1.0f,
      mx::random::key(seed));
}

}  // namespace mlxx
