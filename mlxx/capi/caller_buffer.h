#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <string_view>

#include "mlxx/base/error.h"

namespace mlxx::capi {

// The results that go into memory of the caller: always counted in *count,
// written where they fit, all or nothing. (NULL, 0) asks for the count alone.

template <typename T>
void check_buffer(
    const T* buffer,
    size_t capacity,
    const size_t* count,
    const char* place) {
  if (!count) {
    fail(ErrorKind::invalid_request, place, "count is NULL");
  }
  if (!buffer && capacity != 0) {
    fail(
        ErrorKind::invalid_request,
        place,
        "the buffer is NULL, its capacity {}",
        capacity);
  }
}

// Whether to write. `needed` includes what follows the counted items.
inline bool
fits(size_t needed, const void* buffer, size_t capacity, const char* place) {
  if (!buffer) {
    return false;
  }
  if (capacity < needed) {
    fail(
        ErrorKind::invalid_request,
        place,
        "the buffer holds {}, needed are {}",
        capacity,
        needed);
  }
  return true;
}

template <typename T>
void copy_items(
    std::span<const T> items,
    T* buffer,
    size_t capacity,
    size_t* count,
    const char* place) {
  check_buffer(buffer, capacity, count, place);
  *count = items.size();
  if (fits(items.size(), buffer, capacity, place)) {
    std::copy(items.begin(), items.end(), buffer);
  }
}

// With a zero byte at the end, which *count leaves out.
inline void copy_text(
    std::string_view text,
    char* buffer,
    size_t capacity,
    size_t* count,
    const char* place) {
  check_buffer(buffer, capacity, count, place);
  *count = text.size();
  if (fits(text.size() + 1, buffer, capacity, place)) {
    std::copy(text.begin(), text.end(), buffer);
    buffer[text.size()] = '\0';
  }
}

}  // namespace mlxx::capi
