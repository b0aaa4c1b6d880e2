#include "mlxx/base/runtime_loader/compiled_code.h"

#include <cstdlib>
#include <filesystem>
#include <vector>

#include <fmt/format.h>

#include "mlxx/base/environment.h"
#include "mlxx/base/error.h"
#include "mlxx/base/log.h"
#include "mlxx/base/paths.h"
#include "mlxx/base/runtime_loader/nvidia_driver.h"
#include "mlxx/base/runtime_loader/shared_library.h"
#include "mlxx/base/runtime_loader/trusted_path.h"

namespace mlxx::runtime {

namespace {

namespace fs = std::filesystem;

// The folder under MLXX_HOME, made and safe to run code from.
fs::path own_folder(const fs::path& name) {
  fs::path folder = make_folder(mlxx_home() / "cuda" / name);
  if (auto reason = distrust(folder, Trust::own, mlxx_home())) {
    fail(ErrorKind::bad_file, folder.string(), "is refused: {}", *reason);
  }
  return folder;
}

// MLX writes the code, the kernels' names and the text one after another, and
// believes what it finds: what a process that was killed left is taken away.
void remove_unfinished(const fs::path& folder) {
  std::error_code error;
  std::vector<fs::path> unfinished;
  for (fs::recursive_directory_iterator at(folder, error), end;
       !error && at != end;
       at.increment(error)) {
    if (at->path().extension() == ".ptx" &&
        !fs::exists(fs::path(at->path()).replace_extension(".cu"), error)) {
      unfinished.push_back(at->path());
    }
  }
  for (const fs::path& path : unfinished) {
    fs::remove(path, error);
  }
}

// MLX keeps machine code by the kernel's name alone, so that each of its
// versions and each kind of GPU needs a folder of its own.
std::string folder_of_mlx() {
  auto driver = find_nvidia_driver();
  std::string name = MLXX_MLX_VERSION;
  if (driver) {
    const NvidiaDevice& device = driver->devices.front();
    name += fmt::format("-sm_{}{}", device.compute_major, device.compute_minor);
  }
  return name;
}

}  // namespace

void keep_compiled_code() {
#ifdef __linux__
  bool has_home = environment("MLXX_HOME") || environment("XDG_CACHE_HOME") ||
      environment("HOME");
  if (!has_home || !open_library("libcuda.so.1", Scope::local).handle) {
    return;
  }
  try {
    // The driver reads its one when it starts, which the other one needs.
    if (!environment("CUDA_CACHE_PATH")) {
      setenv("CUDA_CACHE_PATH", own_folder("driver").c_str(), 1);
    }
    if (!environment("MLX_PTX_CACHE_DIR")) {
      fs::path folder = own_folder(fs::path("mlx") / folder_of_mlx());
      remove_unfinished(folder);
      setenv("MLX_PTX_CACHE_DIR", folder.c_str(), 1);
    }
  } catch (const Error& error) {
    // A home that cannot be written to only costs time at every start.
    log_warning("{}; compiled code is kept elsewhere", error.what());
  }
#endif
}

}  // namespace mlxx::runtime
