#pragma once

#include <filesystem>
#include <span>

namespace mlxx {

// A file that must not be there yet, written from start to end: O_EXCL also
// refuses to follow a link. Errors name the path and say so if the disk is
// full (internal); a file that is there already is bad_file.
class NewFile {
 public:
  explicit NewFile(const std::filesystem::path& path);
  ~NewFile();
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  // Whatever the umask: other users may read, nobody else may write.
  void make_readable();
  void write(std::span<const char> bytes);
  // Waits until the content is on the disk.
  void sync();
  // Without it an error of the last bytes would be lost.
  void close();

 private:
  [[noreturn]] void fail_with(int code) const;

  std::filesystem::path path_;
  int descriptor_;
};

}  // namespace mlxx
