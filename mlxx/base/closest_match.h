#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace mlxx {

// The candidate that `word` was probably meant to be, for "did you mean":
// few letters inserted, left out, exchanged or swapped (about one in three),
// or the only candidate that starts with `word`. Case does not count. Nothing
// if no candidate is near. Of equally near ones the first wins.
std::optional<std::string> closest_match(
    std::string_view word,
    const std::vector<std::string>& candidates);

}  // namespace mlxx
