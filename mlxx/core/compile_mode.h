#pragma once

#include <filesystem>
#include <memory>

namespace mlxx {

// MLX's CPU backend fuses by running g++ and loading the result from a
// predictable folder under TMPDIR, where another user may have put a library
// and where processes write over each other's files. This gives the process a
// folder of its own instead.
//
// Layout below `parent`, all of mode 0700 and owned by the user:
//   process-XXXXXX/mlx/<version>/cpu/   what MLX writes and loads, in use
//   kept-<version>/                     finished libraries of former processes
// take_kept() links finished libraries into a new process's folder, and they
// are linked into kept/ when the process ends; so nobody ever loads a file that
// is being written.
class CompileFolder {
 public:
  // invalid_request if `parent` exists and is not the user's own 0700 folder,
  // or has characters in its path that MLX's shell command would interpret;
  // internal if it cannot be made.
  explicit CompileFolder(const std::filesystem::path& parent);
  // Keeps the finished libraries and removes the process's folder.
  ~CompileFolder();
  CompileFolder(const CompileFolder&) = delete;
  CompileFolder& operator=(const CompileFolder&) = delete;

  // What TMPDIR is to be.
  const std::filesystem::path& path() const {
    return path_;
  }
  void take_kept();
  // Removes the libraries in use, which stay loaded. True if there were any.
  bool drop_libraries();

 private:
  void link_libraries(
      const std::filesystem::path& from,
      const std::filesystem::path& to) const;

  std::filesystem::path path_;
  std::filesystem::path libraries_;  // where MLX puts them
  std::filesystem::path kept_;
  int lock_ = -1;  // held while the process lives, so that others see that
};

// For MLXX_COMPILE=fuse on the CPU: makes the private folder in MLXX_HOME (or,
// if nothing can be written there, in the system's temporary folder), points
// TMPDIR of this process to it and tries the compiler with one small function.
// False, with a warning in the log, if there is no compiler, if it fails, or
// if no folder can be made: then nothing may be fused. invalid_request if the
// folder is not the user's own. Works once per process; later calls return
// what the first found.
bool prepare_fusing();

}  // namespace mlxx
