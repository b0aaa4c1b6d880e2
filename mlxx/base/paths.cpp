#include "mlxx/base/paths.h"

#include <system_error>

#include "mlxx/base/environment.h"
#include "mlxx/base/error.h"

namespace mlxx {

std::filesystem::path mlxx_home() {
  if (auto home = environment("MLXX_HOME")) {
    return *home;
  }
  if (auto cache = environment("XDG_CACHE_HOME")) {
    return std::filesystem::path(*cache) / "mlxx";
  }
  if (auto home = environment("HOME")) {
    return std::filesystem::path(*home) / ".cache" / "mlxx";
  }
  fail(
      ErrorKind::invalid_request,
      "MLXX_HOME",
      "no home folder is known, set MLXX_HOME");
}

std::filesystem::path make_folder(const std::filesystem::path& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) {
    fail(
        ErrorKind::internal,
        path.string(),
        "cannot make the folder, {}",
        error.message());
  }
  return path;
}

}  // namespace mlxx
