#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace mlxx::generate {

// Finds stop strings in text that arrives in pieces, and holds back just the
// end that may still become one. The result does not depend on how the text
// was cut: of several matches the one that is complete first wins, and of
// those that end together the longest.
class StopMatcher {
 public:
  // Each stop must be non-empty (validate(GenerateOptions) checks).
  explicit StopMatcher(std::vector<std::string> stops);

  // The text that is now certain to stand before any match. Nothing more
  // comes once matched() is true. UTF-8 in, UTF-8 out, if the stops are UTF-8
  // and no piece ends within a character.
  std::string step(std::string_view piece);
  // The text that was held back and did not become a match.
  std::string flush();

  bool matched() const {
    return matched_.has_value();
  }
  // The stop string that matched, or "".
  std::string matched_stop() const {
    return matched_ ? patterns_[*matched_].text : std::string();
  }

 private:
  struct Pattern {
    std::string text;
    std::vector<size_t> fallback;  // Knuth-Morris-Pratt, per prefix length
    size_t length = 0;             // of the prefix that the text now ends with
  };
  void advance(Pattern& pattern, char byte) const;

  std::vector<Pattern> patterns_;
  std::string held_;
  std::optional<size_t> matched_;  // into patterns_
};

}  // namespace mlxx::generate
