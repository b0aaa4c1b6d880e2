#include "mlxx/base/mapped_file.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "mlxx/base/atomic_file.h"
#include "mlxx/base/error.h"

namespace mlxx {

namespace {

[[noreturn]] void fail_errno(
    const std::filesystem::path& path,
    const char* action) {
  int code = errno;
  bool missing = code == ENOENT || code == ENOTDIR;
  fail(
      missing ? ErrorKind::not_found : ErrorKind::bad_file,
      path.string(),
      "{}, {}",
      action,
      std::strerror(code));
}

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) {
      ::close(fd_);
    }
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const {
    return fd_;
  }
  int take() {
    return std::exchange(fd_, -1);
  }

 private:
  int fd_;
};

}  // namespace

MappedFile::MappedFile(const std::filesystem::path& path) : path_(path) {
  // O_NONBLOCK: opening a FIFO must not hang.
  Descriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (fd.get() < 0) {
    fail_errno(path, "cannot open");
  }
  struct stat info{};
  if (::fstat(fd.get(), &info) != 0) {
    fail_errno(path, "cannot stat");
  }
  if (!S_ISREG(info.st_mode)) {
    fail(ErrorKind::bad_file, path.string(), "not a regular file");
  }
  size_ = static_cast<size_t>(info.st_size);
  if (size_ > 0) {
    void* mapped = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, fd.get(), 0);
    if (mapped == MAP_FAILED) {
      fail_errno(path, "cannot map");
    }
    data_ = static_cast<const std::byte*>(mapped);
  }
  descriptor_ = fd.take();
}

MappedFile::~MappedFile() {
  if (data_) {
    ::munmap(const_cast<std::byte*>(data_), size_);
  }
  if (descriptor_ >= 0) {
    ::close(descriptor_);
  }
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(descriptor_, other.descriptor_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

void MappedFile::check_size() const {
  struct stat info{};
  if (::fstat(descriptor_, &info) != 0) {
    fail_errno(path_, "cannot stat");
  }
  if (static_cast<size_t>(info.st_size) < size_) {
    fail(
        ErrorKind::bad_file,
        path_.string(),
        "file truncated while in use, {} of {} bytes are left",
        info.st_size,
        size_);
  }
}

void MappedFile::release(size_t offset, size_t length) const noexcept {
  auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  size_t begin = (offset + page - 1) / page * page;
  size_t end = (offset + length) / page * page;
  if (data_ && begin < end && end <= size_) {
    ::madvise(
        const_cast<std::byte*>(data_) + begin,
        end - begin,
        MADV_DONTNEED);
  }
}

std::string read_file(const std::filesystem::path& path, size_t max_bytes) {
  MappedFile file(path);
  if (file.size() > max_bytes) {
    fail(
        ErrorKind::bad_file,
        path.string(),
        "{} bytes, the limit for this file is {}",
        file.size(),
        max_bytes);
  }
  auto bytes = file.bytes();
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

void write_file_atomically(
    const std::filesystem::path& path,
    std::string_view content) {
  AtomicFile file(path);
  file.write(std::span(content));
  file.commit();
}

}  // namespace mlxx
