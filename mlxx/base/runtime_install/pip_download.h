#pragma once

#include <filesystem>
#include <string>

#include "mlxx/base/runtime_install/mlx_wheels.h"

namespace mlxx::runtime {

// The command that a user can run to get the wheel, on any machine.
std::string pip_command(const WheelPin& wheel);

// Downloads the wheel into `folder` with pip's downloader, which checks its
// hash and honours the user's index settings; nothing is installed into a
// Python environment. Returns the file. `show_output`: pip's own progress goes
// to stderr. not_found, with the command to run elsewhere, if there is no pip;
// internal, with pip's last line, if it fails.
std::filesystem::path pip_download(
    const WheelPin& wheel,
    const std::filesystem::path& folder,
    bool show_output);

}  // namespace mlxx::runtime
