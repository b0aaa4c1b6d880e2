#include "mlxx/base/runtime_loader/compiled_code.h"

#include <cstdlib>
#include <filesystem>

#include "mlxx/base/environment.h"
#include "mlxx/base/error.h"
#include "mlxx/base/log.h"
#include "mlxx/base/paths.h"
#include "mlxx/base/runtime_loader/shared_library.h"
#include "mlxx/base/runtime_loader/trusted_path.h"

namespace mlxx::runtime {

namespace {

namespace fs = std::filesystem;

// The folder under MLXX_HOME, made and safe to run code from.
fs::path own_folder(const char* name) {
  fs::path folder = make_folder(mlxx_home() / "cuda" / name);
  if (auto reason = distrust(folder, Trust::own, mlxx_home())) {
    fail(ErrorKind::bad_file, folder.string(), "is refused: {}", *reason);
  }
  return folder;
}

void set_if_unset(const char* variable, const char* name) {
  if (!environment(variable)) {
    setenv(variable, own_folder(name).c_str(), 1);
  }
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
    set_if_unset("CUDA_CACHE_PATH", "driver");
    set_if_unset("MLX_PTX_CACHE_DIR", "mlx");
  } catch (const Error& error) {
    // A home that cannot be written to only costs time at every start.
    log_warning("{}; compiled code is kept elsewhere", error.what());
  }
#endif
}

}  // namespace mlxx::runtime
