#include "mlxx/core/kernel_platform.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "mlxx/base/error.h"

namespace mlxx {
namespace {

using Version = std::array<int, 3>;

// The three numbers that `text` begins with. What follows them must begin with
// a dot or a plus sign, as in "0.33.0.dev20260101+abc".
std::optional<Version> parse_version(std::string_view text) {
  Version version{};
  const char* at = text.data();
  const char* end = at + text.size();
  for (size_t i = 0; i < version.size(); ++i) {
    if (i > 0 && (at == end || *at++ != '.')) {
      return std::nullopt;
    }
    auto [rest, error] = std::from_chars(at, end, version[i]);
    if (error != std::errc() || version[i] < 0) {
      return std::nullopt;
    }
    at = rest;
  }
  if (at != end && *at != '.' && *at != '+') {
    return std::nullopt;
  }
  return version;
}

KernelPlatform read_platform() {
  KernelPlatform platform;
  platform.mlx_version = mx::version();
  platform.has_metal = mx::metal::is_available();
  platform.has_cuda = mx::cu::is_available();
  if (mx::is_available(mx::Device::gpu)) {
    auto gpu = platform.has_metal ? Backend::metal : Backend::cuda;
    platform.architecture =
        describe_device(gpu, mx::device_info(mx::Device::gpu), {}).architecture;
  }
  return platform;
}

}  // namespace

Backend KernelPlatform::backend_of(const mx::Stream& stream) const {
  if (stream.device == mx::Device::cpu) {
    return Backend::cpu;
  }
  return has_metal ? Backend::metal : Backend::cuda;
}

const KernelPlatform& loaded_kernel_platform() {
  static const KernelPlatform platform = read_platform();
  return platform;
}

std::optional<std::string> KernelRequirement::unmet(
    const KernelPlatform& platform,
    std::string_view place) const {
  if (!minimum_mlx.empty()) {
    auto minimum = parse_version(minimum_mlx);
    if (!minimum) {
      fail(
          ErrorKind::invalid_request,
          place,
          "the oldest MLX must be given as major.minor.patch, found '{}'",
          minimum_mlx);
    }
    auto loaded = parse_version(platform.mlx_version);
    if (!loaded || *loaded < *minimum) {
      return fmt::format(
          "needs MLX {}, found {}",
          minimum_mlx,
          platform.mlx_version);
    }
  }
  bool matches = architectures.empty() ||
      std::ranges::any_of(architectures, [&](const std::string& prefix) {
                   return platform.architecture.starts_with(prefix);
                 });
  if (!matches) {
    return fmt::format(
        "is for the architectures {}, found '{}'",
        fmt::join(architectures, ", "),
        platform.architecture);
  }
  return std::nullopt;
}

}  // namespace mlxx
