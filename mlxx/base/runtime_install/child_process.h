#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace mlxx::runtime {

struct ChildResult {
  bool started = false;  // false: there is no such program
  int exit_code = -1;    // 128 + signal if one ended it
};

// Runs a program found on PATH, without a shell, with stdin closed, and waits.
// stdout and stderr go to `log_file`, or to stderr if it is empty.
ChildResult run_program_and_wait(
    const std::vector<std::string>& arguments,
    const std::filesystem::path& log_file);

}  // namespace mlxx::runtime
