#include "mlxx/core/device_choice.h"

#include <charconv>

#include "mlxx/base/error.h"
#include "mlxx/core/device.h"

namespace mlxx {

void choose_device(std::string_view place, std::string_view text) {
  int index = 0;
  const char* end = text.data() + text.size();
  auto [rest, error] = std::from_chars(text.data(), end, index);
  if (error != std::errc() || rest != end || index < 0) {
    fail(
        ErrorKind::invalid_request,
        place,
        "must be the number of a GPU, from 0, found '{}'",
        text);
  }
  mx::Device::DeviceType type = mx::default_device().type;
  int count = type == mx::Device::gpu ? mx::device_count(type) : 1;
  if (index >= count) {
    fail(
        ErrorKind::invalid_request,
        place,
        "{} is not there: MLX has {} {} device{}",
        index,
        count,
        to_string(backend()),
        count == 1 ? "" : "s");
  }
  if (type == mx::Device::gpu) {
    mx::set_default_device(mx::Device(type, index));
  }
}

}  // namespace mlxx
