#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "mlxx/base/error.h"

namespace mlxx::capi {

// Gives objects to C as opaque pointers that are really numbers, each used
// once: what was closed, or never was a handle, is refused instead of touched.
// Closing takes the handle away; the object lives until its last user is done.
template <typename Handle, typename Object>
class HandleTable {
 public:
  // Numbers are first, first + step, ...: tables with the same step and other
  // remainders never take each other's handles.
  HandleTable(const char* name, uintptr_t first, uintptr_t step)
      : name_(name), next_(first), step_(step) {}

  Handle* add(std::shared_ptr<Object> object) {
    std::lock_guard lock(mutex_);
    uintptr_t number = next_;
    objects_.emplace(number, std::move(object));
    next_ += step_;
    return reinterpret_cast<Handle*>(number);
  }

  // invalid_request for what is no open handle.
  std::shared_ptr<Object> get(const Handle* handle, const char* place) {
    std::lock_guard lock(mutex_);
    return find(handle, place)->second;
  }

  std::shared_ptr<Object> remove(const Handle* handle, const char* place) {
    std::lock_guard lock(mutex_);
    auto found = find(handle, place);
    auto object = std::move(found->second);
    objects_.erase(found);
    return object;
  }

 private:
  auto find(const Handle* handle, const char* place) {
    if (!handle) {
      fail(ErrorKind::invalid_request, place, "{} is NULL", name_);
    }
    auto found = objects_.find(reinterpret_cast<uintptr_t>(handle));
    if (found == objects_.end()) {
      fail(
          ErrorKind::invalid_request,
          place,
          "{} is no open handle: it was closed, or never was one",
          name_);
    }
    return found;
  }

  std::mutex mutex_;
  const char* name_;
  std::unordered_map<uintptr_t, std::shared_ptr<Object>> objects_;
  uintptr_t next_;
  uintptr_t step_;
};

}  // namespace mlxx::capi
