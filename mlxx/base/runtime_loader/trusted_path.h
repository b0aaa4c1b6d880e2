#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace mlxx::runtime {

// Who may have put a library where it is. Loading one runs its code, so a
// place that other users can write is refused.
enum class Trust {
  // Named by the user or the system: neither the file nor its folder may be
  // writable by everyone.
  named,
  // mlxx's own folders: each part from `root` on must also belong to the user
  // or to root, and not be writable by a group.
  own,
};

// What is wrong with loading code from `path`, or nothing. Symbolic links are
// followed. `root` is used with Trust::own, and must be a parent of `path`.
std::optional<std::string> distrust(
    const std::filesystem::path& path,
    Trust trust,
    const std::filesystem::path& root = {});

// True if the process runs with more rights than its user has (setuid and the
// like): the environment is then another user's input.
bool has_raised_privileges();

// What a shared library for this machine must fulfil before it is mapped: a
// truncated one would end the process with a bus error. Nothing: it is fine.
std::optional<std::string> malformed_library(const std::filesystem::path& path);

}  // namespace mlxx::runtime
