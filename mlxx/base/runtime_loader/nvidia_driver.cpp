#include "mlxx/base/runtime_loader/nvidia_driver.h"

#include <cstddef>

#include <fmt/format.h>

#include "mlxx/base/runtime_loader/shared_library.h"

namespace mlxx::runtime {

namespace {

// The driver's C interface, which is stable across driver versions.
constexpr int kSuccess = 0;
constexpr int kComputeMajor = 75;
constexpr int kComputeMinor = 76;
constexpr int kConcurrentManagedAccess = 89;

using Init = int (*)(unsigned);
using GetVersion = int (*)(int*);
using GetCount = int (*)(int*);
using GetDevice = int (*)(int*, int);
using GetName = int (*)(char*, int, int);
using GetMemory = int (*)(size_t*, int);
using GetAttribute = int (*)(int*, int, int);

template <typename Function>
Function function(void* library, const char* name) {
  return reinterpret_cast<Function>(find_symbol(library, name));
}

std::optional<NvidiaDriver> none(std::string* why_not, std::string reason) {
  if (why_not) {
    *why_not = std::move(reason);
  }
  return std::nullopt;
}

}  // namespace

std::optional<NvidiaDriver> find_nvidia_driver(std::string* why_not) {
#ifdef __APPLE__
  return none(why_not, "macOS has no NVIDIA driver");
#else
  OpenedLibrary library = open_library("libcuda.so.1", Scope::local);
  if (!library.handle) {
    return none(why_not, "libcuda.so.1 of the NVIDIA driver is not installed");
  }
  auto init = function<Init>(library.handle, "cuInit");
  auto version = function<GetVersion>(library.handle, "cuDriverGetVersion");
  auto count = function<GetCount>(library.handle, "cuDeviceGetCount");
  auto device = function<GetDevice>(library.handle, "cuDeviceGet");
  auto name = function<GetName>(library.handle, "cuDeviceGetName");
  auto memory = function<GetMemory>(library.handle, "cuDeviceTotalMem_v2");
  auto attribute =
      function<GetAttribute>(library.handle, "cuDeviceGetAttribute");
  if (!init || !version || !count || !device || !name || !memory ||
      !attribute) {
    return none(why_not, "libcuda.so.1 lacks functions that every driver has");
  }
  if (int code = init(0); code != kSuccess) {
    return none(
        why_not,
        fmt::format("the NVIDIA driver does not start (cuInit gave {})", code));
  }
  NvidiaDriver driver;
  int devices = 0;
  if (version(&driver.cuda_version) != kSuccess ||
      count(&devices) != kSuccess || devices < 1) {
    return none(why_not, "the NVIDIA driver sees no device");
  }
  for (int i = 0; i < devices; ++i) {
    int id = 0;
    if (device(&id, i) != kSuccess) {
      continue;
    }
    NvidiaDevice found;
    char text[256] = {};
    if (name(text, sizeof text - 1, id) == kSuccess) {
      found.name = text;
    }
    size_t bytes = 0;
    if (memory(&bytes, id) == kSuccess) {
      found.memory_bytes = bytes;
    }
    int managed = 0;
    attribute(&found.compute_major, kComputeMajor, id);
    attribute(&found.compute_minor, kComputeMinor, id);
    attribute(&managed, kConcurrentManagedAccess, id);
    found.concurrent_managed_access = managed != 0;
    driver.devices.push_back(std::move(found));
  }
  if (driver.devices.empty()) {
    return none(why_not, "the NVIDIA driver sees no device");
  }
  return driver;
#endif
}

}  // namespace mlxx::runtime
