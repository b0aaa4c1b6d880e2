#include "mlxx/hub/wheel_member.h"

#include <memory>
#include <new>
#include <span>
#include <vector>

#include <archive.h>
#include <archive_entry.h>

#include "mlxx/base/error.h"
#include "mlxx/base/new_file.h"
#include "mlxx/base/sha256.h"

namespace mlxx::hub {

namespace fs = std::filesystem;

namespace {

constexpr size_t kBlock = size_t{1} << 20;
constexpr size_t kMaxEntries = 100000;

struct CloseArchive {
  void operator()(archive* handle) const {
    archive_read_free(handle);
  }
};
using Archive = std::unique_ptr<archive, CloseArchive>;

class WheelReader {
 public:
  explicit WheelReader(const fs::path& wheel)
      : wheel_(wheel), archive_(archive_read_new()) {
    if (!archive_) {
      throw std::bad_alloc();
    }
    // By the directory at its end, so that a cut-off file is noticed.
    archive_read_support_format_zip_seekable(archive_.get());
    if (archive_read_open_filename(archive_.get(), wheel.c_str(), kBlock) !=
        ARCHIVE_OK) {
      fail_to_read();
    }
  }

  // Moves to the member.
  void find(const std::string& member) {
    archive_entry* entry = nullptr;
    for (size_t i = 0; i < kMaxEntries; ++i) {
      int code = archive_read_next_header(archive_.get(), &entry);
      if (code == ARCHIVE_EOF) {
        break;
      }
      if (code != ARCHIVE_OK) {
        fail_to_read();
      }
      const char* name = archive_entry_pathname(entry);
      if (!name || member != name) {
        continue;
      }
      if (archive_entry_filetype(entry) != AE_IFREG ||
          archive_entry_hardlink(entry)) {
        fail(
            ErrorKind::bad_file,
            wheel_.string(),
            "its {} is no plain file",
            member);
      }
      return;
    }
    fail(ErrorKind::not_found, wheel_.string(), "holds no {}", member);
  }

  // 0 at the member's end.
  size_t read(std::span<char> block) {
    la_ssize_t count =
        archive_read_data(archive_.get(), block.data(), block.size());
    if (count < 0) {
      fail_to_read();
    }
    return static_cast<size_t>(count);
  }

 private:
  [[noreturn]] void fail_to_read() const {
    const char* text = archive_error_string(archive_.get());
    fail(
        ErrorKind::bad_file,
        wheel_.string(),
        "is no sound wheel: {}",
        text ? text : "it cannot be read");
  }

  fs::path wheel_;
  Archive archive_;
};

}  // namespace

std::string extract_wheel_member(
    const fs::path& wheel,
    const std::string& member,
    uint64_t max_bytes,
    const fs::path& target,
    const std::function<void(uint64_t bytes)>& on_bytes) {
  WheelReader reader(wheel);
  reader.find(member);
  NewFile output(target);
  Sha256 hash;
  std::vector<char> block(kBlock);
  uint64_t written = 0;
  while (size_t count = reader.read(block)) {
    if (count > max_bytes - written) {
      fail(
          ErrorKind::bad_file,
          wheel.string(),
          "its {} is larger than the {} bytes it should have",
          member,
          max_bytes);
    }
    std::span<const char> bytes(block.data(), count);
    hash.update(std::as_bytes(bytes));
    output.write(bytes);
    written += count;
    if (on_bytes) {
      on_bytes(written);
    }
  }
  output.sync();
  output.close();
  return hash.hex();
}

}  // namespace mlxx::hub
