#pragma once

#include <cctype>
#include <string>
#include <string_view>
#include <vector>

// Looking for markup in text of which more may come.
namespace mlxx::text {

inline bool is_space(char c) {
  return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

inline std::string_view trim(std::string_view text) {
  while (!text.empty() && is_space(text.front())) {
    text.remove_prefix(1);
  }
  while (!text.empty() && is_space(text.back())) {
    text.remove_suffix(1);
  }
  return text;
}

inline size_t leading_spaces(std::string_view text) {
  size_t count = 0;
  while (count < text.size() && is_space(text[count])) {
    ++count;
  }
  return count;
}

enum class Match { no, yes, may_become };

// Whether `text` starts with `marker`, or is the start of it and more comes.
inline Match
match_marker(std::string_view text, std::string_view marker, bool last) {
  if (text.substr(0, marker.size()) == marker) {
    return Match::yes;
  }
  return !last && text.size() < marker.size() &&
          marker.substr(0, text.size()) == text
      ? Match::may_become
      : Match::no;
}

struct Found {
  size_t at = std::string_view::npos;  // npos: none
  size_t which = 0;
  // Text before this may be given out: behind it markup may begin, or white
  // space that belongs to it.
  size_t certain = 0;
};

// The first of `markers` in `text`; of several at one place the longest.
// `spaces`: white space before a marker belongs to it.
Found find_marker(
    std::string_view text,
    const std::vector<std::string>& markers,
    bool last,
    bool spaces);

}  // namespace mlxx::text
