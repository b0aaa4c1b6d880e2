#include "mlxx/core/wired_limit.h"

#include <exception>
#include <utility>

#include "mlxx/base/log.h"
#include "mlxx/core/device.h"

namespace mlxx {

namespace {

class MlxWiredMemory : public WiredMemory {
 public:
  size_t working_set() const override {
    // The device does not change its mind, and the default device may change.
    if (backend() != Backend::metal) {
      return 0;
    }
    static const auto bytes =
        static_cast<size_t>(describe_device().working_set_bytes);
    return bytes;
  }
  size_t set_limit(size_t bytes) override {
    return mx::set_wired_limit(bytes);
  }
  void synchronize() override {
    mx::synchronize();
  }
};

}  // namespace

WiredMemory& wired_memory() {
  // MLX has one wired limit per process, so who may restore it is known there.
  static MlxWiredMemory memory;
  return memory;
}

void WiredMemory::raise() {
  std::lock_guard lock(mutex_);
  if (scopes_ == 0) {
    previous_ = set_limit(working_set());
  }
  ++scopes_;
}

void WiredMemory::restore() {
  std::lock_guard lock(mutex_);
  if (--scopes_ == 0) {
    set_limit(previous_);
  }
}

ScopedWiredLimit::ScopedWiredLimit(size_t weight_bytes, WiredMemory& memory)
    : memory_(memory) {
  size_t working_set = memory.working_set();
  if (working_set > 0 && weight_bytes > working_set / 4 * 3) {
    memory.raise();
    is_raised_ = true;
  }
}

ScopedWiredLimit::~ScopedWiredLimit() {
  try {
    finish();
  } catch (const std::exception& error) {
    log_warning("[wired limit] {}", error.what());
  } catch (...) {
    log_warning("[wired limit] the device failed");
  }
}

void ScopedWiredLimit::finish() {
  if (!std::exchange(is_raised_, false)) {
    return;
  }
  std::exception_ptr failure;
  try {
    memory_.synchronize();
  } catch (...) {
    failure = std::current_exception();
  }
  memory_.restore();
  if (failure) {
    std::rethrow_exception(failure);
  }
}

}  // namespace mlxx
