#include "apps/mlxx/console.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "mlxx/base/environment.h"
#include "mlxx/base/error.h"
#include "mlxx/base/utf8.h"

namespace mlxx::apps {

namespace {

int descriptor(Stream stream) {
  return stream == Stream::out ? STDOUT_FILENO : STDERR_FILENO;
}

const char* escape_code(Color color) {
  switch (color) {
    case Color::bold:
      return "\x1b[1m";
    case Color::dim:
      return "\x1b[2m";
    case Color::red:
      return "\x1b[1;31m";
    case Color::green:
      return "\x1b[32m";
    case Color::yellow:
      return "\x1b[33m";
    case Color::cyan:
      return "\x1b[36m";
  }
  return "";
}

}  // namespace

bool is_terminal(Stream stream) {
  return isatty(descriptor(stream)) == 1;
}

bool use_color(Stream stream) {
  // no-color.org: set and not empty, whatever the value.
  return is_terminal(stream) && !environment("NO_COLOR") &&
      environment("TERM").value_or("dumb") != "dumb";
}

int terminal_width(Stream stream) {
  winsize size{};
  if (ioctl(descriptor(stream), TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
    return size.ws_col;
  }
  return 80;
}

std::string colored(Stream stream, Color color, std::string_view text) {
  if (!use_color(stream)) {
    return std::string(text);
  }
  return fmt::format("{}{}\x1b[0m", escape_code(color), text);
}

std::string visible_controls(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    auto byte = static_cast<unsigned char>(text[i]);
    bool is_c1 = byte == 0xC2 && i + 1 < text.size() &&
        static_cast<unsigned char>(text[i + 1]) < 0xA0;
    if (is_c1) {
      out += "\uFFFD";
      ++i;
    } else if (byte == 0x7F) {
      out += "\u2421";
    } else if (byte < 0x20 && byte != '\n' && byte != '\t' && byte != '\r') {
      // U+2400 + byte, the picture of that control character.
      out += "\xE2\x90";
      out += static_cast<char>(0x80 + byte);
    } else {
      out += static_cast<char>(byte);
    }
  }
  return out;
}

std::string for_display(Stream stream, std::string_view text) {
  return is_terminal(stream) ? visible_controls(text) : std::string(text);
}

void print(std::string_view text) {
  errno = 0;
  bool written =
      std::fwrite(text.data(), 1, text.size(), stdout) == text.size() &&
      std::fflush(stdout) == 0;
  if (written) {
    return;
  }
  if (errno == EPIPE) {
    throw ClosedOutput();
  }
  fail(
      ErrorKind::internal,
      "stdout",
      "the output cannot be written: {}",
      std::strerror(errno));
}

void print_error(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

void print_error_line(std::string_view message) {
  print_error(fmt::format(
      "mlxx: {} {}\n",
      colored(Stream::err, Color::red, "error:"),
      escape_line(message)));
}

}  // namespace mlxx::apps
