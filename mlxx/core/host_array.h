#pragma once

#include <cstddef>

#include "mlxx/core/mlx.h"

namespace mlxx {

// A new array that the host fills before anything reads it.
struct HostArray {
  mx::array array;  // row-contiguous, already available
  std::byte* data;  // its bytes; valid while the array lives
};

// The memory comes from MLX's allocator, so that no copy follows.
HostArray make_host_array(const mx::Shape& shape, mx::Dtype dtype);

}  // namespace mlxx
