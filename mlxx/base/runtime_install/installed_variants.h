#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "mlxx/base/runtime_install/mlx_wheels.h"

namespace mlxx::runtime {

// Variants of MLX in MLXX_HOME/runtime, one folder each, named after variant
// and version. A folder under its final name is complete.

struct InstallOptions {
  // Wheels that are here already. The others are downloaded.
  std::vector<std::filesystem::path> wheels;
  // Of a CUDA variant: leave NVIDIA's libraries out, because the system's
  // loader finds them (a CUDA toolkit with cuDNN and NCCL).
  bool without_libraries = false;
  // pip's progress goes to stderr.
  bool show_progress = false;
  // Told what happens next, such as "unpacking mlx_cpu-...".
  std::function<void(std::string_view)> on_step = {};
};

struct InstalledVariant {
  std::string variant;  // cuda13
  std::string version;  // 0.32.4, of MLX
  std::filesystem::path folder;
  uint64_t bytes = 0;
};

// Returns the folder; at once if it is there already. Every wheel's hash is
// checked, it is unpacked beside the final name and renamed at the end.
// invalid_request (unknown variant), unsupported (not for this machine),
// bad_file (a wheel with another hash, or a damaged one), not_found (no pip),
// and as pip_download().
std::filesystem::path install_variant(
    std::string_view variant,
    const InstallOptions& options);

// The same with the pins given, as a package of a later version would.
std::filesystem::path install_pins(
    const VariantPins& pins,
    const InstallOptions& options);

// Of all versions, sorted by folder name.
std::vector<InstalledVariant> installed_variants();

// not_found if it is not installed. Removes that variant in every version.
void remove_variant(std::string_view variant);

}  // namespace mlxx::runtime
