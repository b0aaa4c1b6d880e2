#pragma once

#include <filesystem>

namespace mlxx {

// MLXX_HOME, else XDG_CACHE_HOME/mlxx, else ~/.cache/mlxx. Not created here.
// invalid_request if none of these is set.
std::filesystem::path mlxx_home();

// The folder, made if need be with mode 0755 (parents too).
std::filesystem::path make_folder(const std::filesystem::path& path);

}  // namespace mlxx
