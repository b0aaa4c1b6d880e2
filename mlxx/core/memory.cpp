#include "mlxx/core/memory.h"

#include <algorithm>

#include "mlxx/base/error.h"
#include "mlxx/core/device.h"

namespace mlxx {

MemoryUse memory_use() {
  return {
      mx::get_active_memory(),
      mx::get_cache_memory(),
      mx::get_peak_memory()};
}

void reset_peak_memory() {
  mx::reset_peak_memory();
}

void clear_cache() {
  mx::clear_cache();
}

MemoryBudget::MemoryBudget(size_t limit_bytes) : limit_(limit_bytes) {
  if (limit_ > 0 && backend() != Backend::cpu) {
    previous_ = mx::set_memory_limit(limit_);
    applied_ = true;
  }
}

MemoryBudget::~MemoryBudget() {
  if (applied_) {
    mx::set_memory_limit(previous_);
  }
}

void MemoryBudget::require(std::string_view place, size_t bytes) const {
  size_t active = mx::get_active_memory();
  if (limit_ > 0 && (active > limit_ || bytes > limit_ - active)) {
    fail(
        ErrorKind::out_of_memory,
        place,
        "{} bytes more do not fit: {} of {} are in use",
        bytes,
        active,
        limit_);
  }
}

ScopedWiredLimit::ScopedWiredLimit(size_t bytes) {
  if (backend() != Backend::metal) {
    return;
  }
  const auto& info = mx::device_info(mx::default_device());
  auto largest = info.find("max_recommended_working_set_size");
  if (largest != info.end()) {
    bytes = std::min(bytes, std::get<size_t>(largest->second));
  }
  previous_ = mx::set_wired_limit(bytes);
  applied_ = true;
}

ScopedWiredLimit::~ScopedWiredLimit() {
  if (applied_) {
    // The weights must stay resident until the last kernel has run.
    mx::synchronize();
    mx::set_wired_limit(previous_);
  }
}

}  // namespace mlxx
