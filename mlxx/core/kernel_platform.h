#pragma once

#include <optional>
#include <string>
#include <vector>

#include "mlxx/core/device.h"
#include "mlxx/core/mlx.h"

namespace mlxx {

// The MLX and the GPU that kernels would run on.
struct KernelPlatform {
  std::string mlx_version;  // as mx::version() says, "0.32.4"
  bool has_metal = false;
  bool has_cuda = false;
  std::string architecture;  // "applegpu_g15s", "sm_90"; empty without a GPU

  // The backend that a stream's operations run on.
  Backend backend_of(const mx::Stream& stream) const;
};

// That of the loaded MLX and its first GPU, read at the first call.
const KernelPlatform& loaded_kernel_platform();

// What a kernel's source asks of the platform.
struct KernelRequirement {
  // The oldest MLX, "major.minor.patch"; empty: any. A development build of a
  // version counts as that version.
  std::string minimum_mlx = {};
  // How the names of the architectures that it is for begin ("sm_9",
  // "applegpu_g15"); empty: all.
  std::vector<std::string> architectures = {};

  // Why it cannot run there, as the end of a sentence; nothing if it can.
  // invalid_request, with `place`, if minimum_mlx is no version.
  std::optional<std::string> unmet(
      const KernelPlatform& platform,
      std::string_view place) const;
};

}  // namespace mlxx
