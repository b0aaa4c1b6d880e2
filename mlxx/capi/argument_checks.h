#pragma once

#include <cstdint>
#include <string_view>

#include "mlxx/base/error.h"
#include "mlxx/base/utf8.h"

namespace mlxx::capi {

// What every function checks of what C gave it; all throw invalid_request.

inline void
require_pointer(const void* pointer, const char* place, const char* name) {
  if (!pointer) {
    fail(ErrorKind::invalid_request, place, "{} is NULL", name);
  }
}

inline void require_utf8(std::string_view text, const char* place) {
  if (!is_valid_utf8(text)) {
    fail(ErrorKind::invalid_request, place, "is not valid UTF-8");
  }
}

// 0 or 1: any other number is more likely a struct laid out wrongly.
inline bool read_flag(int32_t value, const char* name) {
  if (value != 0 && value != 1) {
    fail(ErrorKind::invalid_request, name, "must be 0 or 1, got {}", value);
  }
  return value == 1;
}

inline void require_zero(int32_t reserved, const char* place) {
  if (reserved != 0) {
    fail(
        ErrorKind::invalid_request,
        place,
        "reserved must be 0, got {}",
        reserved);
  }
}

}  // namespace mlxx::capi
