#pragma once

#include <optional>

#include "mlxx/core/mlx.h"
#include "mlxx/kernels/select.h"

namespace mlxx::kernels {

// How positions become angles: position * position_scale / wavelength[i].
struct RopeAngles {
  int dims;          // rotated, of the last axis; even
  bool traditional;  // rotate pairs (2i, 2i + 1), not (i, dims / 2 + i)
  // base^(2i / dims) unless `wavelengths` [dims / 2] float32 are given.
  std::optional<float> base;
  std::optional<mx::array> wavelengths;
  float position_scale = 1;
};

// Rotary position embedding. x [B, H, L, D]; token l is at position
// offset + l. Differentiable in x. Fallback: mx::fast::rope.
mx::array rope(
    const mx::array& x,
    const RopeAngles& angles,
    int offset,
    const Selection& selection);

}  // namespace mlxx::kernels
