#pragma once

#include <cstddef>
#include <memory>
#include <optional>

#include "mlxx/core/mlx.h"

namespace mlxx {

// Whether arrays can stand on memory that MLX did not allocate: true where the
// loaded libmlx has the CPU allocator, false on Metal and CUDA. It is found out
// from how that allocator lays out a buffer of its own, once per process.
bool can_borrow_memory();

// An evaluated, row-contiguous array that reads `data` in place: nothing is
// copied, nothing is counted as MLX's memory, and MLX never writes to it, since
// it gives only memory of its own to the results of operations. `owner` keeps
// the memory alive and is let go with the last array that reads it, views
// included. Never mlx's array(void*, ...), which copies on the CPU.
//
// Eight bytes before `data` must be readable: MLX keeps a buffer's size there.
// They may hold anything, so never ask MLX for the buffer size of the array.
// Absent where can_borrow_memory() is false, and where `data` is not aligned to
// an element. internal for an axis below zero.
std::optional<mx::array> borrow_memory(
    std::shared_ptr<const void> owner,
    const std::byte* data,
    const mx::Shape& shape,
    mx::Dtype dtype);

}  // namespace mlxx
