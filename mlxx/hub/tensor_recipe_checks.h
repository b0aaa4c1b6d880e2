#pragma once

// What recipes of tensors check and say, shared by the files that make them.
#include <optional>
#include <string>
#include <tuple>

#include "mlxx/base/error.h"
#include "mlxx/hub/tensor_recipe.h"

namespace mlxx::hub {

inline std::string shape_text(const auto& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

[[noreturn]] inline void fail_shape(
    const std::string& place,
    const TensorInfo& info,
    const std::string& what) {
  fail(
      ErrorKind::bad_file,
      place,
      "tensor '{}' of shape {}: {}",
      info.name,
      shape_text(info.shape),
      what);
}

inline size_t
axis_of(const TensorInfo& info, int axis, const std::string& place) {
  auto rank = static_cast<int>(info.shape.size());
  int at = axis < 0 ? axis + rank : axis;
  if (at < 0 || at >= rank) {
    fail_shape(place, info, fmt::format("there is no axis {}", axis));
  }
  return static_cast<size_t>(at);
}

inline bool is_last(const TensorInfo& info, size_t axis) {
  return axis + 1 == info.shape.size();
}

inline bool same_quantization(const TensorInfo& a, const TensorInfo& b) {
  auto key = [](const TensorInfo& t) {
    return t.quantization ? std::tuple(
                                t.quantization->mode,
                                t.quantization->bits,
                                t.quantization->group_size,
                                t.quantization->has_global_scale)
                          : std::tuple(std::string(), 0, 0, false);
  };
  return key(a) == key(b);
}

inline bool has_global_scale(const TensorInfo& info) {
  return info.quantization && info.quantization->has_global_scale;
}

// A number for each matrix has no place along the axes of one.
inline void refuse_global_scale(
    const TensorInfo& info,
    const std::string& place) {
  if (has_global_scale(info)) {
    fail(
        ErrorKind::unsupported,
        place,
        "tensor '{}' has a global scale, with which it cannot change its axes",
        info.name);
  }
}

// Calls f on weight, scales and biases, those that are there.
template <typename F>
Weight for_each_part(const Weight& weight, F&& f) {
  auto apply = [&](const std::optional<mx::array>& part) {
    return part ? std::optional<mx::array>(f(*part)) : std::nullopt;
  };
  return {
      f(weight.weight),
      apply(weight.scales),
      apply(weight.biases),
      weight.global_scale};
}

}  // namespace mlxx::hub
