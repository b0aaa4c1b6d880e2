#include "mlxx/core/device.h"

namespace mlxx {

Backend backend() {
  if (mx::default_device() == mx::Device::cpu) {
    return Backend::cpu;
  }
  return mx::metal::is_available() ? Backend::metal : Backend::cuda;
}

std::string_view to_string(Backend backend) {
  switch (backend) {
    case Backend::cpu:
      return "cpu";
    case Backend::metal:
      return "metal";
    case Backend::cuda:
      return "cuda";
  }
  return "cpu";
}

}  // namespace mlxx
