#pragma once

#include <exception>
#include <functional>
#include <new>
#include <string_view>
#include <utility>

#include "mlxx/base/error.h"

namespace mlxx::generate {

// Runs `body`, in which only MLX, the model and the caches are called, and
// turns what MLX throws into Error: out_of_memory if an allocation failed,
// internal otherwise. An Error passes through.
template <typename Body>
auto with_mlx_errors(std::string_view place, Body&& body) -> decltype(body()) {
  try {
    return std::forward<Body>(body)();
  } catch (const Error&) {
    throw;
  } catch (const std::bad_alloc&) {
    fail(ErrorKind::out_of_memory, place, "not enough memory");
  } catch (const std::exception& error) {
    std::string_view what = error.what();
    // MLX's allocators throw std::runtime_error("[malloc] Unable to allocate").
    bool memory = what.find("llocate") != std::string_view::npos ||
        what.find("out of memory") != std::string_view::npos;
    fail(
        memory ? ErrorKind::out_of_memory : ErrorKind::internal,
        place,
        "{}",
        what);
  }
}

}  // namespace mlxx::generate
