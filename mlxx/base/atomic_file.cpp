#include "mlxx/base/atomic_file.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "mlxx/base/error.h"

namespace mlxx {

AtomicFile::AtomicFile(const std::filesystem::path& target)
    : target_(target), temporary_(target.string() + ".XXXXXX") {
  // Otherwise only the rename would fail, after everything has been written.
  std::error_code ignored;
  if (std::filesystem::is_directory(target, ignored)) {
    fail_with(EISDIR, "cannot create a file there");
  }
  descriptor_ = ::mkstemp(temporary_.data());
  if (descriptor_ < 0) {
    fail_with(errno, "cannot create a file there");
  }
  ::fcntl(descriptor_, F_SETFD, FD_CLOEXEC);
}

AtomicFile::~AtomicFile() {
  if (descriptor_ >= 0) {
    ::close(descriptor_);
  }
  if (!temporary_.empty()) {
    ::unlink(temporary_.c_str());
  }
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    ssize_t count = ::write(descriptor_, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) {
      continue;
    }
    if (count <= 0) {
      fail_with(count == 0 ? ENOSPC : errno, "cannot write");
    }
    bytes = bytes.subspan(static_cast<size_t>(count));
  }
}

void AtomicFile::commit() {
  if (::fchmod(descriptor_, 0644) != 0 || ::fsync(descriptor_) != 0) {
    fail_with(errno, "cannot write");
  }
  // Some file systems report a failed write only here.
  if (::close(std::exchange(descriptor_, -1)) != 0) {
    fail_with(errno, "cannot write");
  }
  if (::rename(temporary_.c_str(), target_.c_str()) != 0) {
    fail_with(errno, "cannot rename the finished file");
  }
  temporary_.clear();
  auto folder = target_.parent_path();
  int fd = ::open(
      folder.empty() ? "." : folder.c_str(),
      O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  // A folder that may be written and not read cannot be synced.
  if (fd < 0 && errno == EACCES) {
    return;
  }
  int code = fd < 0 || ::fsync(fd) != 0 ? errno : 0;
  if (fd >= 0) {
    ::close(fd);
  }
  // Not every file system can sync a folder.
  if (code != 0 && code != EINVAL && code != ENOTSUP) {
    fail_with(code, "the file is written, its folder cannot be synced");
  }
}

void AtomicFile::fail_with(int code, const char* action) const {
  bool is_full = code == ENOSPC || code == EDQUOT || code == EFBIG;
  fail(
      ErrorKind::internal,
      target_.string(),
      "{}, {}{}",
      action,
      is_full ? "the disk is full: " : "",
      std::strerror(code));
}

}  // namespace mlxx
