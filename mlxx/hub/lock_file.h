#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace mlxx::hub {

// One process at a time, by a file that all agree on. The system's flock() does
// it, which ends with its owner however that dies, and which huggingface_hub
// uses on the same files. Where a file system has no flock(), a file beside it
// names the owner (process, host, start time), and is taken over once that
// process is gone. The lock file stays: removing it would let two owners in.
class LockFile {
 public:
  enum class Method {
    automatic,   // flock(), or an owner file where there is none
    owner_file,  // as if there were none
  };

  // Waits until the lock is free. `on_wait` is called with the owner's name
  // when waiting starts and about five times a second; it may throw to give
  // up. internal if the file cannot be made.
  LockFile(
      const std::filesystem::path& path,
      const std::function<void(std::string_view owner)>& on_wait,
      Method method = Method::automatic);

  // Nothing if another owner holds it.
  static std::optional<LockFile> try_lock(
      const std::filesystem::path& path,
      Method method = Method::automatic);

  ~LockFile();
  LockFile(LockFile&& other) noexcept;
  LockFile& operator=(LockFile&& other) noexcept;

 private:
  LockFile() = default;

  int descriptor_ = -1;               // flock()
  std::filesystem::path owner_file_;  // else
};

// "process 123 on host" of who holds the lock; "another process" if it does
// not say.
std::string lock_owner(const std::filesystem::path& path);

}  // namespace mlxx::hub
