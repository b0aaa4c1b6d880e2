#pragma once

#include <cstddef>

#include "mlxx/core/mlx.h"

namespace mlxx {

// Memory of MLX's allocator that the host fills.
struct HostBuffer {
  mx::allocator::Data data;
  std::byte* bytes;  // valid while `data`, or an array made of it, lives
};

// out_of_memory, with the number, if the system has no room. MLX's CPU backend
// does not look whether it got the memory: it writes to address 0, and counts
// the bytes as active for ever.
HostBuffer make_host_buffer(size_t nbytes);

// A new array that the host fills before anything reads it.
struct HostArray {
  mx::array array;  // row-contiguous, already available
  std::byte* data;  // its bytes; valid while the array lives
};

// The memory comes from MLX's allocator, so that no copy follows. Errors:
// out_of_memory; internal for an axis below zero.
HostArray make_host_array(const mx::Shape& shape, mx::Dtype dtype);

}  // namespace mlxx
