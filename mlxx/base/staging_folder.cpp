#include "mlxx/base/staging_folder.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <system_error>

#include "mlxx/base/error.h"

namespace mlxx {

namespace fs = std::filesystem;

StagingFolder::StagingFolder(const fs::path& parent) {
  std::string name = (parent / ".staging-XXXXXX").string();
  if (!::mkdtemp(name.data())) {
    fail(
        ErrorKind::internal,
        parent.string(),
        "no folder can be made there, {}",
        std::strerror(errno));
  }
  path_ = name;
}

StagingFolder::~StagingFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

void StagingFolder::publish(const fs::path& inner, const fs::path& target) {
  std::error_code error;
  if (fs::exists(target)) {
    fs::rename(target, path_ / ".replaced", error);
  }
  if (!error) {
    fs::rename(inner, target, error);
  }
  if (error) {
    fail(
        ErrorKind::internal,
        target.string(),
        "cannot be put in place, {}",
        error.message());
  }
}

}  // namespace mlxx
