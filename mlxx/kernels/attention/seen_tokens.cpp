#include "mlxx/kernels/attention/seen_tokens.h"

#include <algorithm>

#include "mlxx/base/error.h"

namespace mlxx::kernels {
namespace {

void check(const std::vector<RowSegment>& segments, int length) {
  int last = 0;
  for (size_t i = 0; i < segments.size(); ++i) {
    const auto& segment = segments[i];
    if (segment.begin < last || segment.end <= segment.begin ||
        segment.end > length) {
      fail(
          ErrorKind::invalid_request,
          "packed row",
          "segment {} has tokens {} to {}, after {} and of {}",
          i,
          segment.begin,
          segment.end,
          last,
          length);
    }
    if (segment.parent >= static_cast<int>(i) || segment.parent < -1) {
      fail(
          ErrorKind::invalid_request,
          "packed row",
          "segment {} names segment {} as its parent",
          i,
          segment.parent);
    }
    last = segment.end;
  }
}

}  // namespace

int first_position(const std::vector<RowSegment>& segments, int index) {
  int position = 0;
  for (int at = segments[index].parent; at >= 0; at = segments[at].parent) {
    position += segments[at].end - segments[at].begin;
  }
  return position;
}

std::vector<SeenTokens>
seen_tokens(const std::vector<RowSegment>& segments, int window, int length) {
  check(segments, length);
  std::vector<SeenTokens> seen(length);
  if (segments.empty()) {
    for (int i = 0; i < length; ++i) {
      seen[i].begin = window > 0 ? std::max(0, i + 1 - window) : 0;
      seen[i].end = i + 1;
    }
    return seen;
  }
  for (int i = 0; i < length; ++i) {
    seen[i] = {0, 0, i, i + 1};
  }
  for (const auto& segment : segments) {
    int parent_begin = 0;
    int parent_end = 0;
    if (segment.parent >= 0) {
      parent_begin = segments[segment.parent].begin;
      parent_end = segments[segment.parent].end;
    }
    for (int i = segment.begin; i < segment.end; ++i) {
      int before = i - segment.begin;  // tokens of the segment before it
      int own = window > 0 ? std::min(before, window - 1) : before;
      int rest = window > 0 ? window - 1 - own : parent_end;
      int from = std::max(parent_begin, parent_end - rest);
      seen[i] = {from, parent_end, i - own, i + 1};
    }
  }
  return seen;
}

}  // namespace mlxx::kernels
