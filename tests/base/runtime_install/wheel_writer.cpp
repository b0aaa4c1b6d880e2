#include "tests/base/runtime_install/wheel_writer.h"

#include <stdexcept>

#include <archive.h>
#include <archive_entry.h>

namespace mlxx::runtime {

void write_wheel(
    const std::filesystem::path& path,
    const std::vector<WheelEntry>& entries) {
  archive* writer = archive_write_new();
  archive_write_set_format_zip(writer);
  if (archive_write_open_filename(writer, path.c_str()) != ARCHIVE_OK) {
    throw std::runtime_error(archive_error_string(writer));
  }
  for (const WheelEntry& entry : entries) {
    archive_entry* header = archive_entry_new();
    archive_entry_set_pathname(header, entry.name.c_str());
    bool is_folder = !entry.name.empty() && entry.name.back() == '/';
    if (!entry.link_target.empty()) {
      archive_entry_set_filetype(header, AE_IFLNK);
      archive_entry_set_symlink(header, entry.link_target.c_str());
    } else {
      archive_entry_set_filetype(header, is_folder ? AE_IFDIR : AE_IFREG);
    }
    // Rights that must not be taken over.
    archive_entry_set_perm(header, 06777);
    archive_entry_set_size(header, static_cast<int64_t>(entry.content.size()));
    archive_write_header(writer, header);
    archive_write_data(writer, entry.content.data(), entry.content.size());
    archive_entry_free(header);
  }
  archive_write_close(writer);
  archive_write_free(writer);
}

}  // namespace mlxx::runtime
