#include "mlxx/base/paths.h"

#include <cerrno>
#include <system_error>

#include <sys/stat.h>

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
  if (std::filesystem::is_directory(path, error)) {
    return path;
  }
  if (path.has_parent_path() && path.parent_path() != path) {
    make_folder(path.parent_path());
  }
  // Not create_directories(): under a umask of 002 a group could write there.
  if (mkdir(path.c_str(), 0755) != 0 && errno != EEXIST) {
    error = std::error_code(errno, std::generic_category());
  } else if (!std::filesystem::is_directory(path, error) && !error) {
    error = std::make_error_code(std::errc::not_a_directory);
  }
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
