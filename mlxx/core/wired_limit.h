#pragma once

#include <cstddef>
#include <mutex>
#include <type_traits>

#include "mlxx/core/mlx.h"

namespace mlxx {

// The wired limit of one device: how much of its memory the system must keep
// resident. Near the working set's ceiling generation is about four times
// slower without it; set for good, it gets processes killed when several models
// are loaded. So it is only ever raised by a ScopedWiredLimit.
//
// A device has one limit for the whole process, whoever sets it: scopes on
// several threads may overlap in any order, the first raises it and the last
// restores what the first found.
class WiredMemory {
 public:
  WiredMemory() = default;
  virtual ~WiredMemory() = default;
  WiredMemory(const WiredMemory&) = delete;
  WiredMemory& operator=(const WiredMemory&) = delete;

  // The recommended working set; 0 where nothing can be wired.
  virtual size_t working_set() const = 0;
  // Returns the previous limit.
  virtual size_t set_limit(size_t bytes) = 0;
  // Waits until what this thread has asked the device for is done.
  virtual void synchronize() = 0;

 private:
  friend class ScopedWiredLimit;
  void raise();
  void restore();

  std::mutex mutex_;
  int scopes_ = 0;
  size_t previous_ = 0;
};

// That of MLX's default device: Metal's, or one with working set 0.
WiredMemory& wired_memory();

// While it lives, the limit stands at the device's working set, if the weights
// take more than 75 % of that; otherwise, and on other backends than Metal, it
// does nothing. Its end waits for the device, since the weights must stay
// resident until the last kernel has run, and then restores the limit, also if
// waiting fails.
// Errors: whatever the device throws when the limit is set; nothing is changed
// then.
class ScopedWiredLimit {
 public:
  explicit ScopedWiredLimit(
      size_t weight_bytes,
      WiredMemory& memory = wired_memory());
  // An error of waiting goes to the log: finish() lets it out.
  ~ScopedWiredLimit();
  ScopedWiredLimit(const ScopedWiredLimit&) = delete;
  ScopedWiredLimit& operator=(const ScopedWiredLimit&) = delete;

  bool is_raised() const {
    return is_raised_;
  }
  // Ends the scope now; what the device throws comes out after the limit has
  // been restored. The second call does nothing.
  void finish();

 private:
  WiredMemory& memory_;
  bool is_raised_ = false;
};

// Runs `body` in such a scope. What it throws comes out unchanged, and before
// an error of waiting.
template <typename Body>
auto with_wired_limit(
    size_t weight_bytes,
    Body&& body,
    WiredMemory& memory = wired_memory()) -> decltype(body()) {
  ScopedWiredLimit scope(weight_bytes, memory);
  if constexpr (std::is_void_v<decltype(body())>) {
    body();
    scope.finish();
  } else {
    decltype(body()) result = body();
    scope.finish();
    return result;
  }
}

}  // namespace mlxx
