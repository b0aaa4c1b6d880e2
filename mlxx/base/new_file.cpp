#include "mlxx/base/new_file.h"

#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "mlxx/base/error.h"

namespace mlxx {

NewFile::NewFile(const std::filesystem::path& path)
    : path_(path),
      descriptor_(::open(
          path.c_str(),
          O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
          0644)) {
  if (descriptor_ >= 0) {
    return;
  }
  if (errno == EEXIST) {
    fail(
        ErrorKind::bad_file,
        path.string(),
        "cannot be made: {}",
        std::strerror(errno));
  }
  fail_with(errno);
}

NewFile::~NewFile() {
  if (descriptor_ >= 0) {
    ::close(descriptor_);
  }
}

void NewFile::make_readable() {
  ::fchmod(descriptor_, 0644);
}

void NewFile::write(std::span<const char> bytes) {
  while (!bytes.empty()) {
    ssize_t count = ::write(descriptor_, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) {
      continue;
    }
    if (count <= 0) {
      fail_with(count == 0 ? ENOSPC : errno);
    }
    bytes = bytes.subspan(static_cast<size_t>(count));
  }
}

void NewFile::sync() {
  if (::fsync(descriptor_) != 0) {
    fail_with(errno);
  }
}

void NewFile::close() {
  if (::close(std::exchange(descriptor_, -1)) != 0) {
    fail_with(errno);
  }
}

void NewFile::fail_with(int code) const {
  bool is_full = code == ENOSPC || code == EDQUOT || code == EFBIG;
  fail(
      ErrorKind::internal,
      path_.string(),
      "{} ({})",
      is_full ? "the disk is full" : "cannot be written",
      std::strerror(code));
}

}  // namespace mlxx
