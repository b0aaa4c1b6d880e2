#include "mlxx/train/segment_plan.h"

#include <algorithm>

#include <fmt/format.h>

namespace mlxx::train {

std::string SegmentPlan::description() const {
  if (segments.empty()) {
    return checkpoint_top ? "checkpoint" : keeps_products ? "light" : "none";
  }
  int layers = segments.front().last - segments.front().first;
  return layers == 1 ? "segments of 1 layer"
                     : fmt::format("segments of {} layers", layers);
}

SegmentPlan
cut_in_segments(int first, int layers, int segment_layers, int top_layers) {
  SegmentPlan plan;
  int top = std::max(first, layers - std::max(0, top_layers));
  int step = std::max(1, segment_layers);
  // From the top, so that the shorter one is at the bottom.
  for (int last = top; last > first; last -= step) {
    plan.segments.push_back({std::max(first, last - step), last});
  }
  std::ranges::reverse(plan.segments);
  plan.top = {top, layers};
  return plan;
}

}  // namespace mlxx::train
