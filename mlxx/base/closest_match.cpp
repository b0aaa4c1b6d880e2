#include "mlxx/base/closest_match.h"

#include <algorithm>

namespace mlxx {

namespace {

// Longer words are no typing mistakes, and the distance takes n x m steps.
constexpr size_t kMaxLength = 256;

std::string lower_case(std::string_view text) {
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  return lower;
}

// Insertions, deletions, substitutions and swaps of neighbours (optimal string
// alignment).
size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<size_t> before_last(b.size() + 1);
  std::vector<size_t> last(b.size() + 1);
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) {
    last[j] = j;
  }
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      size_t cost = a[i - 1] == b[j - 1] ? 0 : 1;
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + cost});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], before_last[j - 2] + 1);
      }
    }
    std::swap(before_last, last);
    std::swap(last, row);
  }
  return last[b.size()];
}

}  // namespace

std::optional<std::string> closest_match(
    std::string_view word,
    const std::vector<std::string>& candidates) {
  if (word.empty() || word.size() > kMaxLength) {
    return std::nullopt;
  }
  std::string wanted = lower_case(word);
  const std::string* best = nullptr;
  size_t best_distance = 0;
  const std::string* longer = nullptr;
  size_t longer_count = 0;
  for (const std::string& candidate : candidates) {
    if (candidate.size() > kMaxLength) {
      continue;
    }
    std::string lower = lower_case(candidate);
    size_t distance = edit_distance(wanted, lower);
    // A third of the longer word, and never all of a short one.
    size_t length = std::max(wanted.size(), lower.size());
    size_t allowed = length < 3 ? 0 : std::max<size_t>(1, length / 3);
    if (distance <= allowed && (!best || distance < best_distance)) {
      best = &candidate;
      best_distance = distance;
    }
    if (wanted.size() >= 2 && lower.starts_with(wanted)) {
      longer = &candidate;
      ++longer_count;
    }
  }
  if (longer_count == 1) {
    best = longer;
  }
  return best ? std::optional<std::string>(*best) : std::nullopt;
}

}  // namespace mlxx
