#pragma once

#include <span>
#include <string_view>
#include <type_traits>

#include "mlxx/core/mlx.h"

namespace mlxx {

namespace host_values_detail {
// MLX's TypeToDtype takes double for float32, since that is what it makes of a
// constant.
template <typename T>
mx::Dtype dtype_of() {
  if constexpr (std::is_same_v<T, double>) {
    return mx::float64;
  } else {
    return mx::TypeToDtype<T>();
  }
}
// `value` evaluated and row-contiguous for the CPU. invalid_request if its
// dtype is not `wanted`.
mx::array
read(const mx::array& value, mx::Dtype wanted, std::string_view place);
// invalid_request unless it has exactly one element.
void require_one(const mx::array& value, std::string_view place);
}  // namespace host_values_detail

// The values of an array as the host reads them, in row order whatever its
// strides are; they live as long as this object. MLX's own data<T>() is not
// checked: it reads through a null pointer before the array has been evaluated,
// ignores strides, and takes any type for any dtype.
//
// T is the C++ type of one of MLX's dtypes: bool, the integers of fixed size,
// float, double, mx::float16_t, mx::bfloat16_t, mx::complex64_t.
template <typename T>
class HostValues {
 public:
  // Evaluates. Errors: invalid_request, with `place`, if the dtype is not T's;
  // what MLX throws while evaluating, also inside a function that is being
  // transformed, where nothing can be evaluated.
  HostValues(const mx::array& value, std::string_view place)
      : array_(host_values_detail::read(
            value,
            host_values_detail::dtype_of<T>(),
            place)) {}

  std::span<const T> span() const& {
    return {array_.size() == 0 ? nullptr : array_.data<T>(), array_.size()};
  }
  // It would outlive what it looks at.
  std::span<const T> span() const&& = delete;

 private:
  mx::array array_;
};

// The one value of an array with one element, of any number of axes. MLX's own
// item<T>() takes any type for any dtype. Errors as HostValues, and
// invalid_request for another number of elements.
template <typename T>
T item_of(const mx::array& value, std::string_view place) {
  host_values_detail::require_one(value, place);
  HostValues<T> values(value, place);
  return values.span()[0];
}

}  // namespace mlxx
