#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <type_traits>

#include "mlxx/base/error.h"

namespace mlxx::capi {

// Structs of mlxx.h from callers that were compiled against an older or newer
// one. All have `size` first, fields in slots of 8 bytes and no hidden gaps, so
// that a multiple of 8 never cuts a field.

inline constexpr size_t kSizeStep = 8;
inline constexpr size_t kMaxSize = 4096;  // more is a size that was never set

inline void check_struct_size(size_t size, const char* place, size_t known) {
  if (size < kSizeStep || size > kMaxSize || size % kSizeStep != 0) {
    fail(
        ErrorKind::invalid_request,
        place,
        "size is {}, this libmlxx has {}: set it to the struct's size",
        size,
        known);
  }
}

// What the caller gave, over `defaults`. invalid_request where the part that
// only a newer library knows is not zero: it would be ignored.
template <typename T>
T read_struct(const T* given, const T& defaults, const char* place) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) % kSizeStep == 0);
  T result = defaults;
  if (!given) {
    return result;
  }
  const size_t size = given->size;
  check_struct_size(size, place, sizeof(T));
  const auto* bytes = reinterpret_cast<const unsigned char*>(given);
  for (size_t i = sizeof(T); i < size; ++i) {
    if (bytes[i] != 0) {
      fail(
          ErrorKind::invalid_request,
          place,
          "has something at byte {}, which this libmlxx does not know: it "
          "knows {} bytes",
          i,
          sizeof(T));
    }
  }
  std::memcpy(&result, bytes, std::min(size, sizeof(T)));
  result.size = sizeof(T);
  return result;
}

// Fills in as much as the caller has room for; what only a newer caller knows
// becomes zero. `out->size` has been checked and stays.
template <typename T>
void write_struct(T* out, T value) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) % kSizeStep == 0);
  const size_t size = out->size;
  value.size = size;
  auto* bytes = reinterpret_cast<unsigned char*>(out);
  std::memcpy(bytes, &value, std::min(size, sizeof(T)));
  if (size > sizeof(T)) {
    std::memset(bytes + sizeof(T), 0, size - sizeof(T));
  }
}

}  // namespace mlxx::capi
