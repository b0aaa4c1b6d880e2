#include "mlxx/core/device_choice.h"

#include <charconv>
#include <cstdlib>

#include "mlxx/base/environment.h"
#include "mlxx/base/error.h"
#include "mlxx/base/paths.h"
#include "mlxx/core/device.h"

namespace mlxx {

namespace {

// runtime::keep_compiled_code() chose a folder for the first GPU's kind; MLX
// asks for it when it compiles for the first time.
void keep_compiled_code_of(const mx::Device& device) {
  auto folder = environment("MLX_PTX_CACHE_DIR");
  size_t kind = folder ? folder->rfind("-sm_") : std::string::npos;
  if (kind == std::string::npos || backend() != Backend::cuda ||
      !folder->starts_with((mlxx_home() / "cuda" / "mlx").string())) {
    return;
  }
  const auto& info = mx::device_info(device);
  auto found = info.find("architecture");
  const auto* name =
      found == info.end() ? nullptr : std::get_if<std::string>(&found->second);
  if (name) {
    std::string own = folder->substr(0, kind) + "-" + *name;
    setenv("MLX_PTX_CACHE_DIR", make_folder(own).c_str(), 1);
  }
}

}  // namespace

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
    keep_compiled_code_of(mx::default_device());
  }
}

}  // namespace mlxx
