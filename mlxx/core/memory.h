#pragma once

#include <cstddef>
#include <string_view>

#include "mlxx/core/mlx.h"

namespace mlxx {

// What MLX's allocator holds, in bytes.
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

// Bytes that new arrays may take. On a GPU the limit is also MLX's own, which
// makes the allocator reclaim before it exceeds; MLX's CPU backend ignores
// limits, so require() is the one guard there. The previous limit of MLX comes
// back when the object dies.
class MemoryBudget {
 public:
  // 0 means no limit.
  explicit MemoryBudget(size_t limit_bytes);
  ~MemoryBudget();
  MemoryBudget(const MemoryBudget&) = delete;
  MemoryBudget& operator=(const MemoryBudget&) = delete;

  size_t limit() const {
    return limit_;
  }
  // out_of_memory, naming place and numbers, if `bytes` more would not fit.
  void require(std::string_view place, size_t bytes) const;

 private:
  size_t limit_;
  size_t previous_ = 0;
  bool applied_ = false;
};

// Keeps weights resident on Metal while one generation runs: set, generate,
// synchronize, restore. A permanent wired limit gets processes killed when
// several models are loaded, so there is no other way to set it. Does nothing
// on other backends.
class ScopedWiredLimit {
 public:
  explicit ScopedWiredLimit(size_t bytes);
  ~ScopedWiredLimit();
  ScopedWiredLimit(const ScopedWiredLimit&) = delete;
  ScopedWiredLimit& operator=(const ScopedWiredLimit&) = delete;

 private:
  size_t previous_ = 0;
  bool applied_ = false;
};

}  // namespace mlxx
