#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>

#include "mlxx/hub/content_hash.h"

namespace mlxx::hub {

// A file that is being downloaded, beside its final name: NAME.part. What an
// earlier attempt left is kept and hashed, so that the download goes on from
// there. The file stays when the object goes, unless finish() renamed it.
class PartFile {
 public:
  // `on_read` is called with the bytes of an earlier attempt as they are
  // hashed; it may throw. bad_file if something else than a plain file has that
  // name, internal if it cannot be made.
  PartFile(
      const std::filesystem::path& target,
      uint64_t size,
      const ContentHash& expected,
      const std::function<void(uint64_t bytes)>& on_read = {});
  ~PartFile();
  PartFile(const PartFile&) = delete;
  PartFile& operator=(const PartFile&) = delete;

  // Bytes that are there, in order from the start.
  uint64_t written() const {
    return written_;
  }
  bool is_whole() const {
    return written_ == size_;
  }

  // internal, saying how much is missing, if the disk cannot hold the rest.
  void check_space() const;
  // Errors: internal (a full disk: what is there stays for the next attempt),
  // bad_file (more than the announced size).
  void append(std::span<const std::byte> bytes);
  void start_over();

  // Compares the hash, syncs, and gives the file its final name. Returns false,
  // with the file removed, if the content is another one.
  bool finish();
  // Of the content that finish() refused.
  const std::string& found_hash() const {
    return found_hash_;
  }

  static std::filesystem::path path_for(const std::filesystem::path& target);

 private:
  [[noreturn]] void fail_to_write(int code) const;
  void hash_what_is_there(const std::function<void(uint64_t)>& on_read);

  std::filesystem::path target_;
  std::filesystem::path path_;
  uint64_t size_;
  ContentHash expected_;
  ContentHasher hasher_;
  int descriptor_ = -1;
  uint64_t written_ = 0;
  std::string found_hash_;
};

}  // namespace mlxx::hub
