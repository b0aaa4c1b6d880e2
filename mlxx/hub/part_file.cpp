#include "mlxx/hub/part_file.h"

#include <cerrno>
#include <cstring>
#include <vector>

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "mlxx/base/error.h"

namespace mlxx::hub {

namespace fs = std::filesystem;

namespace {

std::string megabytes(uint64_t bytes) {
  return fmt::format("{:.1f} MB", static_cast<double>(bytes) / 1e6);
}

}  // namespace

fs::path PartFile::path_for(const fs::path& target) {
  return target.string() + ".part";
}

PartFile::PartFile(
    const fs::path& target,
    uint64_t size,
    const ContentHash& expected,
    const std::function<void(uint64_t bytes)>& on_read)
    : target_(target),
      path_(path_for(target)),
      size_(size),
      expected_(expected),
      hasher_(expected.kind, size) {
  descriptor_ =
      open(path_.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0644);
  if (descriptor_ < 0) {
    fail(
        errno == ELOOP ? ErrorKind::bad_file : ErrorKind::internal,
        path_.string(),
        "cannot be made, {}",
        std::strerror(errno));
  }
  struct stat info{};
  try {
    if (fstat(descriptor_, &info) != 0 || !S_ISREG(info.st_mode)) {
      fail(ErrorKind::bad_file, path_.string(), "is no plain file");
    }
    written_ = static_cast<uint64_t>(info.st_size);
    if (written_ > size_) {
      start_over();
    }
    hash_what_is_there(on_read);
  } catch (...) {
    close(descriptor_);
    throw;
  }
}

PartFile::~PartFile() {
  if (descriptor_ >= 0) {
    close(descriptor_);
  }
}

void PartFile::hash_what_is_there(
    const std::function<void(uint64_t)>& on_read) {
  std::vector<std::byte> block(size_t{1} << 20);
  uint64_t offset = 0;
  while (offset < written_) {
    ssize_t count = pread(
        descriptor_,
        block.data(),
        block.size(),
        static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) {
      continue;
    }
    if (count <= 0) {
      fail(
          ErrorKind::internal,
          path_.string(),
          "cannot be read, {}",
          count == 0 ? "it became shorter" : std::strerror(errno));
    }
    auto bytes = std::min(static_cast<uint64_t>(count), written_ - offset);
    hasher_.update({block.data(), static_cast<size_t>(bytes)});
    offset += bytes;
    if (on_read) {
      on_read(offset);
    }
  }
}

void PartFile::check_space() const {
  struct statvfs info{};
  if (fstatvfs(descriptor_, &info) != 0) {
    return;  // the write will tell
  }
  uint64_t missing = size_ - written_;
  // Not available * block size, which could overflow.
  uint64_t blocks = missing / info.f_frsize + (missing % info.f_frsize ? 1 : 0);
  if (info.f_frsize > 0 && blocks > info.f_bavail) {
    fail(
        ErrorKind::internal,
        path_.string(),
        "the disk has too little room: {} are missing and {} are free",
        megabytes(missing),
        megabytes(uint64_t{info.f_bavail} * info.f_frsize));
  }
}

void PartFile::fail_to_write(int code) const {
  bool is_full = code == ENOSPC || code == EDQUOT || code == EFBIG;
  fail(
      ErrorKind::internal,
      path_.string(),
      "{} ({}); {} of {} are kept, the same command goes on from there",
      is_full ? "the disk is full" : "cannot be written",
      std::strerror(code),
      megabytes(written_),
      megabytes(size_));
}

void PartFile::append(std::span<const std::byte> bytes) {
  if (bytes.size() > size_ - written_) {
    fail(
        ErrorKind::bad_file,
        target_.filename().string(),
        "the server sends more than the {} bytes that it announced",
        size_);
  }
  while (!bytes.empty()) {
    ssize_t count = pwrite(
        descriptor_,
        bytes.data(),
        bytes.size(),
        static_cast<off_t>(written_));
    if (count < 0 && errno == EINTR) {
      continue;
    }
    if (count <= 0) {
      fail_to_write(count == 0 ? ENOSPC : errno);
    }
    auto length = static_cast<size_t>(count);
    hasher_.update(bytes.first(length));
    written_ += length;
    bytes = bytes.subspan(length);
  }
}

void PartFile::start_over() {
  if (ftruncate(descriptor_, 0) != 0) {
    fail_to_write(errno);
  }
  written_ = 0;
  hasher_ = ContentHasher(expected_.kind, size_);
}

bool PartFile::finish() {
  found_hash_ = hasher_.hex();
  if (found_hash_ != expected_.hex) {
    unlink(path_.c_str());
    return false;
  }
  // The name must not appear before the content is on the disk.
  if (fsync(descriptor_) != 0) {
    fail_to_write(errno);
  }
  int descriptor = descriptor_;
  descriptor_ = -1;
  if (close(descriptor) != 0 || rename(path_.c_str(), target_.c_str()) != 0) {
    fail_to_write(errno);
  }
  return true;
}

}  // namespace mlxx::hub
