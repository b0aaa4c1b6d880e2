#include "mlxx/train/replaced_values.h"

#include <sstream>

#include "mlxx/base/error.h"

namespace mlxx::train {
namespace {

std::string form_of(const mx::array& value) {
  std::ostringstream dtype;
  dtype << value.dtype();
  return fmt::format(
      "[{}] of {}",
      fmt::join(value.shape().begin(), value.shape().end(), ", "),
      dtype.str());
}

}  // namespace

void check_replaced(
    const char* place,
    const Trainable& trainable,
    const std::vector<mx::array>& values) {
  const auto& now = trainable.values();
  if (values.size() != now.size()) {
    fail(
        ErrorKind::invalid_request,
        place,
        "has {} arrays, not {}",
        now.size(),
        values.size());
  }
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i].shape() != now[i].shape() ||
        values[i].dtype() != now[i].dtype()) {
      fail(
          ErrorKind::invalid_request,
          place,
          "'{}' is {}, not {}",
          trainable.names()[i],
          form_of(now[i]),
          form_of(values[i]));
    }
  }
}

}  // namespace mlxx::train
