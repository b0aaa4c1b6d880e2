#pragma once

#include <string>
#include <string_view>

namespace mlxx {

// True if `text` is well-formed UTF-8 (no surrogates, no overlong forms).
bool is_valid_utf8(std::string_view text);

// Each maximal ill-formed part becomes U+FFFD, as the Unicode standard
// recommends (section 3.9) and Python's errors="replace" does.
std::string replace_invalid_utf8(std::string_view text);

// One printable line: control characters become \n, \t, \x1b ..., ill-formed
// bytes become \xNN, and anything past `max_bytes` becomes "...".
std::string escape_line(std::string_view text, size_t max_bytes = 4096);

}  // namespace mlxx
