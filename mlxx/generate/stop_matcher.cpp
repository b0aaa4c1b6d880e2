#include "mlxx/generate/stop_matcher.h"

#include <algorithm>
#include <utility>

namespace mlxx::generate {

StopMatcher::StopMatcher(std::vector<std::string> stops) {
  patterns_.reserve(stops.size());
  for (std::string& stop : stops) {
    Pattern pattern{std::move(stop), {}, 0};
    // fallback[n]: longest proper prefix that also ends the first n bytes.
    pattern.fallback.assign(pattern.text.size() + 1, 0);
    size_t length = 0;
    for (size_t n = 1; n < pattern.text.size(); ++n) {
      while (length > 0 && pattern.text[n] != pattern.text[length]) {
        length = pattern.fallback[length];
      }
      if (pattern.text[n] == pattern.text[length]) {
        ++length;
      }
      pattern.fallback[n + 1] = length;
    }
    patterns_.push_back(std::move(pattern));
  }
}

void StopMatcher::advance(Pattern& pattern, char byte) const {
  while (pattern.length > 0 && pattern.text[pattern.length] != byte) {
    pattern.length = pattern.fallback[pattern.length];
  }
  if (pattern.text[pattern.length] == byte) {
    ++pattern.length;
  }
}

std::string StopMatcher::step(std::string_view piece) {
  if (matched()) {
    return {};
  }
  if (patterns_.empty()) {
    return std::string(piece);
  }
  for (char byte : piece) {
    held_.push_back(byte);
    for (size_t i = 0; i < patterns_.size(); ++i) {
      Pattern& pattern = patterns_[i];
      advance(pattern, byte);
      if (pattern.length == pattern.text.size() &&
          (!matched_ || pattern.length > patterns_[*matched_].length)) {
        matched_ = i;
      }
    }
    if (matched_) {
      size_t length = patterns_[*matched_].length;
      std::string before = held_.substr(0, held_.size() - length);
      held_.clear();
      return before;
    }
  }
  size_t keep = 0;
  for (const Pattern& pattern : patterns_) {
    keep = std::max(keep, pattern.length);
  }
  std::string certain = held_.substr(0, held_.size() - keep);
  held_.erase(0, held_.size() - keep);
  return certain;
}

std::string StopMatcher::flush() {
  return std::exchange(held_, {});
}

}  // namespace mlxx::generate
