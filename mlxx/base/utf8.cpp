#include "mlxx/base/utf8.h"

#include <cstdint>

#include <fmt/format.h>

namespace mlxx {

namespace {

struct Sequence {
  size_t length;  // bytes that belong together
  bool valid;
};

// The well-formed sequence at the front of `text`, or the length of the
// maximal ill-formed part there. `text` is not empty.
Sequence next_sequence(std::string_view text) {
  auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  uint8_t first = byte(0);
  if (first < 0x80) {
    return {1, true};
  }
  size_t length;
  uint8_t low = 0x80, high = 0xBF;  // allowed range of the second byte
  if (first >= 0xC2 && first <= 0xDF) {
    length = 2;
  } else if (first >= 0xE0 && first <= 0xEF) {
    length = 3;
    low = first == 0xE0 ? 0xA0 : 0x80;
    high = first == 0xED ? 0x9F : 0xBF;
  } else if (first >= 0xF0 && first <= 0xF4) {
    length = 4;
    low = first == 0xF0 ? 0x90 : 0x80;
    high = first == 0xF4 ? 0x8F : 0xBF;
  } else {
    return {1, false};
  }
  for (size_t i = 1; i < length; ++i) {
    if (i >= text.size() || byte(i) < low || byte(i) > high) {
      return {i, false};
    }
    low = 0x80;
    high = 0xBF;
  }
  return {length, true};
}

}  // namespace

bool is_valid_utf8(std::string_view text) {
  while (!text.empty()) {
    auto [length, valid] = next_sequence(text);
    if (!valid) {
      return false;
    }
    text.remove_prefix(length);
  }
  return true;
}

std::string replace_invalid_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    auto [length, valid] = next_sequence(text);
    out += valid ? text.substr(0, length) : "\xEF\xBF\xBD";
    text.remove_prefix(length);
  }
  return out;
}

std::string escape_line(std::string_view text, size_t max_bytes) {
  std::string out;
  while (!text.empty()) {
    if (out.size() >= max_bytes) {
      return out + "...";
    }
    auto [length, valid] = next_sequence(text);
    auto first = static_cast<uint8_t>(text[0]);
    if (!valid) {
      for (char c : text.substr(0, length)) {
        out += fmt::format("\\x{:02x}", static_cast<uint8_t>(c));
      }
    } else if (first == '\n') {
      out += "\\n";
    } else if (first == '\r') {
      out += "\\r";
    } else if (first == '\t') {
      out += "\\t";
    } else if (first < 0x20 || first == 0x7F) {
      out += fmt::format("\\x{:02x}", first);
    } else if (
        length == 2 && first == 0xC2 && static_cast<uint8_t>(text[1]) < 0xA0) {
      // C1 controls: some terminals obey them.
      out += fmt::format("\\u{:04x}", static_cast<uint8_t>(text[1]));
    } else {
      out += text.substr(0, length);
    }
    text.remove_prefix(length);
  }
  return out;
}

}  // namespace mlxx
