#pragma once

#include <cstddef>

#include "mlxx/core/mlx.h"

// For MLX's own limits call MLX: mx::set_memory_limit and mx::set_cache_limit
// return the previous value and are restored by whoever needs that. What MLX
// lacks is in memory_budget.h (a limit that holds on the CPU) and wired_limit.h
// (one that is never left raised).
namespace mlxx {

// What MLX's allocator holds, in bytes. Memory that MLX only borrows
// (borrowed_array.h) is not counted.
struct MemoryUse {
  size_t active;  // in arrays that are alive
  size_t cache;   // freed, kept for reuse
  size_t peak;    // highest `active` since the start or the last reset
};

MemoryUse memory_use();
void reset_peak_memory();

// Gives freed buffers back to the system: after each prefill chunk, every 256
// decode steps, and when a model or a cache has been dropped.
void clear_cache();

}  // namespace mlxx
