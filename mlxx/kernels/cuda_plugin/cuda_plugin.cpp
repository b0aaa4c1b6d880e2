#include "mlxx/kernels/cuda_plugin/cuda_plugin.h"

#include <filesystem>
#include <optional>
#include <string_view>

#include <fmt/format.h>

#include "mlxx/base/runtime_loader/candidates.h"
#include "mlxx/base/runtime_loader/shared_library.h"
#include "mlxx/base/runtime_loader/trusted_path.h"
#include "mlxx/core/device.h"

namespace mlxx::kernels {
namespace {

namespace fs = std::filesystem;

using PluginFunction = const CudaPlugin* (*)();

struct Loaded {
  const CudaPlugin* plugin = nullptr;
  std::string why;
};

std::optional<fs::path> find_library() {
  fs::path folder = runtime::module_folder();
  std::string name = runtime::library_file_name("mlxx_cuda");
  for (const fs::path& path :
       {folder / name, folder.parent_path() / "lib" / name}) {
    std::error_code error;
    if (fs::exists(path, error)) {
      return path;
    }
  }
  return std::nullopt;
}

Loaded load(const fs::path& path) {
  if (auto malformed = runtime::malformed_library(path)) {
    return {nullptr, fmt::format("{} {}", path.string(), *malformed)};
  }
  if (auto reason = runtime::distrust(path, runtime::Trust::named)) {
    return {nullptr, fmt::format("{} is refused: {}", path.string(), *reason)};
  }
  auto library = runtime::open_library(path.string(), runtime::Scope::local);
  if (!library.handle) {
    return {nullptr, fmt::format("it cannot be loaded: {}", library.error)};
  }
  auto function = reinterpret_cast<PluginFunction>(
      runtime::find_symbol(library.handle, CudaPlugin::kSymbol));
  const CudaPlugin* plugin = function ? function() : nullptr;
  std::string why = why_not_usable(plugin);
  if (!why.empty()) {
    return {nullptr, fmt::format("{} {}", path.string(), why)};
  }
  return {plugin, {}};
}

Loaded load() {
  if (backend() != Backend::cuda) {
    return {nullptr, "MLX's default device is no NVIDIA GPU"};
  }
  auto path = find_library();
  if (!path) {
    return {
        nullptr,
        fmt::format(
            "{} is not beside the library (this mlxx was built without CUDA)",
            runtime::library_file_name("mlxx_cuda"))};
  }
  return load(*path);
}

}  // namespace

std::string why_not_usable(const CudaPlugin* plugin) {
  if (!plugin) {
    return fmt::format("has no table '{}'", CudaPlugin::kSymbol);
  }
  if (plugin->version != CudaPlugin::kVersion ||
      plugin->bytes != sizeof(CudaPlugin)) {
    return fmt::format(
        "has a table of version {} ({} bytes), wanted is {} ({} bytes)",
        plugin->version,
        plugin->bytes,
        CudaPlugin::kVersion,
        sizeof(CudaPlugin));
  }
  if (plugin->mlxx_version != std::string_view(MLXX_VERSION)) {
    return fmt::format(
        "comes from mlxx {}, this is {}",
        plugin->mlxx_version,
        MLXX_VERSION);
  }
  if (plugin->mlx_version != runtime::built_against()) {
    return fmt::format(
        "was built against MLX {}, this is {}",
        plugin->mlx_version,
        runtime::built_against());
  }
  return {};
}

const CudaPlugin* cuda_plugin(std::string* why) {
  static const Loaded loaded = load();
  if (why) {
    *why = loaded.why;
  }
  return loaded.plugin;
}

}  // namespace mlxx::kernels
