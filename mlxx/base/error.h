#pragma once

#include <exception>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

namespace mlxx {

// What went wrong, as a caller may act on it. docs/errors.md maps each kind to
// an exit code and an HTTP status.
enum class ErrorKind {
  invalid_request,  // the caller asked for something impossible
  unsupported,      // understood, and not implemented
  not_found,        // a model, file or name that does not exist
  bad_file,         // a file that is damaged, hostile or not what it claims
  out_of_memory,    // would not fit, or did not
  cancelled,        // stopped at the caller's wish
  internal,         // a bug of mlxx or of a library below it
};

// "bad_file" for ErrorKind::bad_file, and so on.
std::string_view to_string(ErrorKind kind);

// The one exception that leaves the library. The message has the form
// "[place] what was wrong, what was found" and is one line of valid UTF-8:
// control characters and bad bytes in `message` are escaped.
class Error : public std::exception {
 public:
  Error(ErrorKind kind, std::string_view message);

  ErrorKind kind() const noexcept {
    return kind_;
  }
  const char* what() const noexcept override {
    return message_.c_str();
  }

 private:
  ErrorKind kind_;
  std::string message_;
};

// Throws Error{kind, "[place] " + the formatted text}.
template <typename... Args>
[[noreturn]] void fail(
    ErrorKind kind,
    std::string_view place,
    fmt::format_string<Args...> format,
    Args&&... args) {
  throw Error(
      kind,
      fmt::format(
          "[{}] {}",
          place,
          fmt::format(format, std::forward<Args>(args)...)));
}

}  // namespace mlxx
