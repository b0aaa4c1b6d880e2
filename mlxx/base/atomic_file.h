#pragma once

#include <filesystem>
#include <span>
#include <string>

namespace mlxx {

// A file that is written beside its target, under a temporary name, and takes
// the target's place in one step: whoever opens the target, also after a crash
// or a kill at any moment, finds the old file or the new one, whole.
//
// The temporary file goes with the object unless commit() was called. A process
// that is killed leaves it behind ("<target>.XXXXXX"); nothing reads that name.
// Errors: internal, naming the target, with the system's message, which says so
// if the disk is full.
class AtomicFile {
 public:
  explicit AtomicFile(const std::filesystem::path& target);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(std::span<const std::byte> bytes);
  void write(std::span<const char> bytes) {
    write(std::as_bytes(bytes));
  }
  // Syncs the file, renames it, and syncs the folder, so that the name too is
  // on the disk when this returns. Other users may read the file, nobody else
  // may write it, whatever the umask.
  void commit();

 private:
  [[noreturn]] void fail_with(int code, const char* action) const;

  std::filesystem::path target_;
  std::string temporary_;
  int descriptor_ = -1;
};

}  // namespace mlxx
