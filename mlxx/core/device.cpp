#include "mlxx/core/device.h"

#include <algorithm>

namespace mlxx {

namespace {

std::string text_of(const DeviceProperties& properties, const char* key) {
  auto found = properties.find(key);
  if (found == properties.end()) {
    return {};
  }
  auto* text = std::get_if<std::string>(&found->second);
  return text ? *text : std::string();
}

uint64_t number_of(const DeviceProperties& properties, const char* key) {
  auto found = properties.find(key);
  if (found == properties.end()) {
    return 0;
  }
  auto* number = std::get_if<size_t>(&found->second);
  return number ? *number : 0;
}

}  // namespace

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

DeviceInfo describe_device() {
  return describe_device(
      backend(),
      mx::device_info(mx::default_device()),
      host_memory());
}

DeviceInfo describe_device(
    Backend backend,
    const DeviceProperties& properties,
    const HostMemory& host) {
  DeviceInfo info;
  info.backend = backend;
  info.name = text_of(properties, "device_name");
  info.architecture = text_of(properties, "architecture");
  switch (backend) {
    case Backend::cpu:
      info.total_bytes = host.total_bytes;
      info.available_bytes = host.available_bytes;
      info.working_set_bytes = host.usable_bytes() / 5 * 4;
      break;
    case Backend::metal: {
      uint64_t said = number_of(properties, "memory_size");
      info.total_bytes = said > 0 ? said : host.total_bytes;
      info.available_bytes = host.available_bytes;
      info.working_set_bytes =
          number_of(properties, "max_recommended_working_set_size");
      break;
    }
    case Backend::cuda:
      info.total_bytes = number_of(properties, "total_memory");
      info.available_bytes =
          std::min(number_of(properties, "free_memory"), info.total_bytes);
      info.working_set_bytes = info.total_bytes / 20 * 19;
      break;
  }
  return info;
}

}  // namespace mlxx
