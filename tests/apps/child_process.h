#pragma once

#include <map>
#include <string>
#include <vector>

namespace mlxx::apps {

// How to run the program under test.
struct ChildOptions {
  std::vector<std::string> arguments;
  std::string input;  // stdin, which then ends
  // Added to a small fixed environment; an empty value unsets.
  std::map<std::string, std::string> environment;
  // Where stdout goes instead of being collected: a file's path, "" for a
  // pipe, or kClosedPipe for one whose reader is gone.
  std::string stdout_path;
  // SIGINT is sent as soon as stdout has this many bytes; -1: never.
  int interrupt_after = -1;
};

inline constexpr const char* kClosedPipe = "closed pipe";

struct ChildResult {
  int exit_code;  // 128 + the signal if one ended it
  std::string out;
  std::string err;
};

// Runs MLXX_BINARY to its end. Longer than a minute is a failure of the test
// (exit code 128 + SIGALRM).
ChildResult run_mlxx(const ChildOptions& options);
ChildResult run_mlxx(std::vector<std::string> arguments);

// The variables of run_mlxx's environment, as execve takes them.
std::vector<std::string> child_environment(
    const std::map<std::string, std::string>& changes);

// True if `text` is one line that starts with "mlxx: error: " and holds
// nothing but printable characters.
bool is_error_line(const std::string& text);

}  // namespace mlxx::apps
