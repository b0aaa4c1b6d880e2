#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

namespace mlxx {

// A whole file mapped read-only. The mapping keeps the file's pages alive
// after the name is gone; a file that another process *shortens* is the one
// fault a mapping cannot report (SIGBUS), so check_size() is called before
// each bulk read.
class MappedFile {
 public:
  // Errors: not_found, bad_file (not a regular file, cannot be mapped).
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  std::span<const std::byte> bytes() const {
    return {data_, size_};
  }
  size_t size() const {
    return size_;
  }
  const std::filesystem::path& path() const {
    return path_;
  }

  // bad_file if the file is now shorter than when it was mapped.
  void check_size() const;

  // Tells the kernel that the range will not be read again soon.
  void release(size_t offset, size_t length) const noexcept;

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

// The whole of a small file. `max_bytes` bounds what is read (bad_file).
std::string read_file(
    const std::filesystem::path& path,
    size_t max_bytes = size_t{256} << 20);

// As AtomicFile: readers see the old file or the new one, never a part. Errors:
// internal, with the system's message.
void write_file_atomically(
    const std::filesystem::path& path,
    std::string_view content);

}  // namespace mlxx
