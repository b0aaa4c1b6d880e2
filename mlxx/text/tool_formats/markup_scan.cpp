#include "mlxx/text/tool_formats/markup_scan.h"

namespace mlxx::text {

Found find_marker(
    std::string_view text,
    const std::vector<std::string>& markers,
    bool last,
    bool spaces) {
  Found found;
  auto before_spaces = [&](size_t at) {
    while (spaces && at > 0 && is_space(text[at - 1])) {
      --at;
    }
    return at;
  };
  for (size_t at = 0; at < text.size(); ++at) {
    std::string_view rest = text.substr(at);
    bool may_become = false;
    for (size_t which = 0; which < markers.size(); ++which) {
      if (markers[which].empty() || markers[which][0] != rest[0]) {
        continue;
      }
      Match match = match_marker(rest, markers[which], last);
      may_become |= match == Match::may_become;
      if (match == Match::yes &&
          (found.at != at ||
           markers[which].size() > markers[found.which].size())) {
        found.at = at;
        found.which = which;
      }
    }
    // A longer marker may still come of one that is found.
    if (may_become) {
      found.at = std::string_view::npos;
      found.certain = before_spaces(at);
      return found;
    }
    if (found.at == at) {
      found.certain = before_spaces(at);
      return found;
    }
  }
  found.certain =
      last || markers.empty() ? text.size() : before_spaces(text.size());
  return found;
}

}  // namespace mlxx::text
