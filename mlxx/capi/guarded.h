#pragma once

#include <utility>

#include "mlxx/capi/status.h"

namespace mlxx::capi {

// The body of a C function: no exception gets out of it.
template <typename Body>
mlxx_status guarded(ErrorText error, Body&& body) noexcept {
  try {
    return std::forward<Body>(body)();
  } catch (...) {
    return describe_current_exception(error);
  }
}

}  // namespace mlxx::capi
