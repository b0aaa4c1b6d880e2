#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>

#include "mlxx/base/host_memory.h"
#include "mlxx/core/mlx.h"

namespace mlxx {

enum class Backend { cpu, metal, cuda };

// The backend of MLX's default device.
Backend backend();

// "cpu", "metal", "cuda".
std::string_view to_string(Backend backend);

// A device that MLX computes on. A number is 0, and a text empty, where neither
// MLX nor the system says it.
struct DeviceInfo {
  Backend backend = Backend::cpu;
  std::string name;          // "Apple M3 Max", "NVIDIA H200", "AMD EPYC"
  std::string architecture;  // "applegpu_g15s", "sm_90", "x86_64"
  // The device's memory; on the CPU and on Metal the machine's.
  uint64_t total_bytes = 0;
  // What can be had now: of the whole device on CUDA, of the machine without
  // swapping elsewhere, within the limits of the container on the CPU.
  uint64_t available_bytes = 0;
  // What may be in use before it gets slow or fails: Metal's own number; on
  // CUDA 95 % of the device and on the CPU 80 % of what the process may have,
  // the shares that MLX takes for its own limits.
  uint64_t working_set_bytes = 0;
};

// MLX's default device, now.
DeviceInfo describe_device();

// As MLX's device_info() returns them.
using DeviceProperties =
    std::unordered_map<std::string, std::variant<std::string, size_t>>;

// The same from what MLX and the system say. Properties that are missing or of
// another type count as not said.
DeviceInfo describe_device(
    Backend backend,
    const DeviceProperties& properties,
    const HostMemory& host);

}  // namespace mlxx
