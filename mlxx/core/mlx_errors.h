#pragma once

#include <exception>
#include <string_view>
#include <utility>

#include "mlxx/base/error.h"

namespace mlxx {

// Throws what MLX threw as an Error with MLX's words: out_of_memory if an
// allocation failed, unsupported if an operation has no gradient, internal
// otherwise.
[[noreturn]] void fail_as_mlx(
    std::string_view place,
    const std::exception& error);

// Runs `body`, in which only MLX, the model and the caches are called, and
// turns what MLX throws into Error. An Error passes through.
template <typename Body>
auto with_mlx_errors(std::string_view place, Body&& body) -> decltype(body()) {
  try {
    return std::forward<Body>(body)();
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    fail_as_mlx(place, error);
  }
}

}  // namespace mlxx
