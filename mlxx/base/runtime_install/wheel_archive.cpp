#include "mlxx/base/runtime_install/wheel_archive.h"

#include <memory>
#include <string>
#include <vector>

#include <archive.h>
#include <archive_entry.h>
#include <sys/stat.h>

#include "mlxx/base/error.h"
#include "mlxx/base/new_file.h"
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
    file.make_readable();
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
      file.write({block.data(), static_cast<size_t>(count)});
    }
    file.close();
  }
  if (entries == 0) {
    fail(ErrorKind::bad_file, wheel.string(), "is empty");
  }
}

}  // namespace mlxx::runtime
