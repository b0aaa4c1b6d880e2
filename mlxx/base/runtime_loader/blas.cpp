#include "mlxx/base/runtime_loader/blas.h"

#include "mlxx/base/environment.h"
#include "mlxx/base/error.h"
#include "mlxx/base/runtime_loader/shared_library.h"
#include "mlxx/base/runtime_loader/trusted_path.h"

namespace mlxx::runtime {

namespace {

namespace fs = std::filesystem;

// Defined by every complete BLAS, called by libmlx.
constexpr const char* kBlasSymbol = "cblas_sgemm";
#ifndef __APPLE__
// The system's search finds it where the distribution put it.
constexpr const char* kOpenBlas = "libopenblas.so.0";
#endif

BlasInUse load_named(const std::string& setting) {
  fs::path path = setting;
  if (!path.is_absolute()) {
    fail(
        ErrorKind::invalid_request,
        "MLXX_BLAS",
        "must be 'mlx', 'openblas' or an absolute path, is '{}'",
        setting);
  }
  std::error_code error;
  if (!fs::exists(path, error)) {
    fail(ErrorKind::not_found, "MLXX_BLAS", "{} is not there", setting);
  }
  if (auto malformed = malformed_library(path)) {
    fail(ErrorKind::bad_file, "MLXX_BLAS", "{} {}", setting, *malformed);
  }
  if (auto reason = distrust(path, Trust::named)) {
    fail(ErrorKind::bad_file, "MLXX_BLAS", "is refused: {}", *reason);
  }
  OpenedLibrary library = open_library(setting, Scope::global);
  if (!library.handle) {
    fail(ErrorKind::bad_file, "MLXX_BLAS", "{}", library.error);
  }
  if (!find_symbol(library.handle, kBlasSymbol)) {
    fail(
        ErrorKind::bad_file,
        "MLXX_BLAS",
        "{} is not a BLAS: it has no {}",
        setting,
        kBlasSymbol);
  }
  return {.path = path, .reason = "MLXX_BLAS"};
}

}  // namespace

BlasInUse load_blas(const std::string& setting) {
  std::string wanted =
      setting.empty() ? environment("MLXX_BLAS").value_or("") : setting;
#ifdef __APPLE__
  if (!wanted.empty() && wanted != "mlx") {
    fail(
        ErrorKind::unsupported,
        "MLXX_BLAS",
        "MLX uses Accelerate on macOS, '{}' cannot take its place",
        wanted);
  }
  return {.path = {}, .reason = "MLX uses Accelerate"};
#else
  if (wanted == "mlx") {
    return {.path = {}, .reason = "MLXX_BLAS=mlx"};
  }
  if (wanted.empty() && environment("MLXX_KERNEL") == "fallback") {
    return {.path = {}, .reason = "MLXX_KERNEL=fallback"};
  }
  if (!wanted.empty() && wanted != "openblas") {
    return load_named(wanted);
  }
  OpenedLibrary library = open_library(kOpenBlas, Scope::global);
  if (library.handle) {
    auto path = library_of(find_symbol(library.handle, kBlasSymbol));
    return {
        .path = path ? *path : fs::path(kOpenBlas),
        .reason = wanted.empty() ? "found by the system's search"
                                 : "MLXX_BLAS=openblas"};
  }
  if (!wanted.empty()) {
    fail(
        ErrorKind::not_found,
        "MLXX_BLAS",
        "OpenBLAS cannot be loaded: {}; Debian's package is "
        "libopenblas0-pthread",
        library.error);
  }
  return {.path = {}, .reason = "OpenBLAS is not installed"};
#endif
}

BlasInUse blas_in_use() {
  auto path = library_of(find_global_symbol(kBlasSymbol));
  if (!path) {
    return {.path = {}, .reason = "no library of this process has cblas_sgemm"};
  }
  return {.path = *path, .reason = {}};
}

}  // namespace mlxx::runtime
