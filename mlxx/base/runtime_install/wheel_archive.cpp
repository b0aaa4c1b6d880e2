#include "mlxx/base/runtime_install/wheel_archive.h"

#include <cerrno>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include <archive.h>
#include <archive_entry.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "mlxx/base/error.h"
#include "mlxx/base/paths.h"

namespace mlxx::runtime {

namespace {

namespace fs = std::filesystem;

struct CloseArchive {
  void operator()(archive* handle) const {
    archive_read_free(handle);
  }
};
using Archive = std::unique_ptr<archive, CloseArchive>;

class NewFile {
 public:
  // Must not be there yet: O_EXCL also refuses to follow a link.
  explicit NewFile(const fs::path& path)
      : path_(path),
        descriptor_(open(
            path.c_str(),
            O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
            0644)) {
    if (descriptor_ < 0) {
      fail(
          errno == EEXIST ? ErrorKind::bad_file : ErrorKind::internal,
          path.string(),
          "cannot be made: {}",
          std::strerror(errno));
    }
    // Whatever the umask: other users may read, nobody else may write.
    fchmod(descriptor_, 0644);
  }
  ~NewFile() {
    if (descriptor_ >= 0) {
      ::close(descriptor_);
    }
  }
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  void write(const char* bytes, size_t count) {
    while (count > 0) {
      ssize_t written = ::write(descriptor_, bytes, count);
      if (written < 0 && errno == EINTR) {
        continue;
      }
      if (written <= 0) {
        fail_to_write();
      }
      bytes += written;
      count -= static_cast<size_t>(written);
    }
  }

  void close() {
    int descriptor = descriptor_;
    descriptor_ = -1;
    if (::close(descriptor) != 0) {
      fail_to_write();
    }
  }

 private:
  [[noreturn]] void fail_to_write() {
    fail(
        ErrorKind::internal,
        path_.string(),
        "cannot be written: {}",
        std::strerror(errno));
  }

  fs::path path_;
  int descriptor_;
};

// The entry's name as a path below the folder. A wheel has plain relative
// names with forward slashes only.
fs::path safe_path(const fs::path& wheel, const std::string& name) {
  auto refuse = [&](const char* why) {
    fail(
        ErrorKind::bad_file,
        wheel.string(),
        "has the entry '{}', which {}",
        name,
        why);
  };
  if (name.empty() || name.front() == '/') {
    refuse("is no relative path");
  }
  if (name.find('\\') != std::string::npos) {
    refuse("has a backslash");
  }
  fs::path path(name);
  for (const fs::path& part : path) {
    if (part == ".." || part == ".") {
      refuse("leads out of its folder");
    }
  }
  return path;
}

void make_folders(const fs::path& folder) {
  make_folder(folder);
  chmod(folder.c_str(), 0755);
}

}  // namespace

void extract_wheel(
    const fs::path& wheel,
    const fs::path& folder,
    const ExtractLimits& limits) {
  Archive reader(archive_read_new());
  if (!reader) {
    throw std::bad_alloc();
  }
  // By the directory at its end, so that a cut-off file is noticed.
  archive_read_support_format_zip_seekable(reader.get());
  auto fail_to_read = [&] {
    const char* text = archive_error_string(reader.get());
    fail(
        ErrorKind::bad_file,
        wheel.string(),
        "is not a sound wheel: {}",
        text ? text : "it cannot be read");
  };
  constexpr size_t kBlock = size_t{1} << 20;
  if (archive_read_open_filename(reader.get(), wheel.c_str(), kBlock) !=
      ARCHIVE_OK) {
    fail_to_read();
  }
  std::vector<char> block(kBlock);
  uint64_t bytes = 0;
  uint64_t entries = 0;
  archive_entry* entry = nullptr;
  while (true) {
    int code = archive_read_next_header(reader.get(), &entry);
    if (code == ARCHIVE_EOF) {
      break;
    }
    if (code != ARCHIVE_OK) {
      fail_to_read();
    }
    const char* raw_name = archive_entry_pathname(entry);
    std::string name = raw_name ? raw_name : "";
    fs::path target = folder / safe_path(wheel, name);
    if (++entries > limits.max_entries) {
      fail(
          ErrorKind::bad_file,
          wheel.string(),
          "has more than {} entries",
          limits.max_entries);
    }
    auto type = archive_entry_filetype(entry);
    if (archive_entry_hardlink(entry) ||
        (type != AE_IFREG && type != AE_IFDIR)) {
      fail(
          ErrorKind::bad_file,
          wheel.string(),
          "has the entry '{}', which is neither a file nor a folder",
          name);
    }
    if (type == AE_IFDIR) {
      make_folders(target);
      continue;
    }
    // No Python runs here, and several wheels bring the same __init__.py.
    if (target.extension() == ".py") {
      continue;
    }
    make_folders(target.parent_path());
    NewFile file(target);
    while (true) {
      la_ssize_t count =
          archive_read_data(reader.get(), block.data(), block.size());
      if (count == 0) {
        break;
      }
      if (count < 0) {
        fail_to_read();
      }
      bytes += static_cast<uint64_t>(count);
      if (bytes > limits.max_bytes) {
        fail(
            ErrorKind::bad_file,
            wheel.string(),
            "unpacks to more than {} bytes",
            limits.max_bytes);
      }
      file.write(block.data(), static_cast<size_t>(count));
    }
    file.close();
  }
  if (entries == 0) {
    fail(ErrorKind::bad_file, wheel.string(), "is empty");
  }
}

}  // namespace mlxx::runtime
