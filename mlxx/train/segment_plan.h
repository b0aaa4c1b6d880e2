#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "mlxx/train/differentiate.h"

namespace mlxx::train {

// Layers [first, last).
struct LayerRange {
  int first = 0;
  int last = 0;
};

// How a backward pass is cut: layers below `first` need none. Of the segments
// only what enters them is kept; the top one and the head stay one graph.
struct SegmentPlan {
  std::vector<LayerRange> segments;  // from the bottom
  LayerRange top;
  bool checkpoint_top = false;  // its layers are computed again
  bool keeps_products = false;  // of all layers, as nn::TrainingRows
  bool waits = false;  // a GPU's memory may not be enough without waiting

  std::string description() const;
};

// `first`: the lowest layer whose backward pass is needed. `top_layers` are not
// computed again, the others in segments of so many.
SegmentPlan
cut_in_segments(int first, int layers, int segment_layers, int top_layers);

}  // namespace mlxx::train
