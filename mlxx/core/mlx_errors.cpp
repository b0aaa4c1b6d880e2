#include "mlxx/core/mlx_errors.h"

#include <new>

namespace mlxx {

void fail_as_mlx(std::string_view place, const std::exception& error) {
  if (dynamic_cast<const std::bad_alloc*>(&error)) {
    fail(ErrorKind::out_of_memory, place, "not enough memory");
  }
  std::string_view what = error.what();
  auto says = [&](std::string_view words) {
    return what.find(words) != std::string_view::npos;
  };
  ErrorKind kind = ErrorKind::internal;
  // MLX's allocators throw std::runtime_error("[malloc] Unable to allocate").
  if (says("llocate") || says("out of memory")) {
    kind = ErrorKind::out_of_memory;
  } else if (says("vjp] Not implemented") || says("Cannot calculate VJP")) {
    kind = ErrorKind::unsupported;
  }
  fail(kind, place, "{}", what);
}

}  // namespace mlxx
