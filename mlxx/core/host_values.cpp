#include "mlxx/core/host_values.h"

#include <fmt/ranges.h>

#include "mlxx/base/error.h"
#include "mlxx/core/dtype.h"

namespace mlxx::host_values_detail {

mx::array
read(const mx::array& value, mx::Dtype wanted, std::string_view place) {
  if (value.dtype() != wanted) {
    fail(
        ErrorKind::invalid_request,
        place,
        "the array must be {}, it is {}",
        dtype_name(wanted),
        dtype_name(value.dtype()));
  }
  // On the CPU: no GPU holds every dtype, and this only moves values.
  mx::array result = mx::contiguous(value, false, mx::Device::cpu);
  result.eval();
  return result;
}

void require_one(const mx::array& value, std::string_view place) {
  if (value.size() != 1) {
    fail(
        ErrorKind::invalid_request,
        place,
        "the array must have one element, its shape is [{}]",
        fmt::join(value.shape(), ", "));
  }
}

}  // namespace mlxx::host_values_detail
