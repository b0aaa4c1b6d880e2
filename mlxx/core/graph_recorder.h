#pragma once

#include <vector>

#include "mlxx/core/recorded_graph.h"

namespace mlxx {

struct Recording {
  RecordedGraph graph;
  // What the graph's slots held, one array per slot. Those from which no
  // gradient reaches an output are behind a stop_gradient.
  std::vector<mx::array> slots;
  // For each of the given outputs, which of graph.outputs it is; -1 if it was
  // not recorded.
  std::vector<int> output_of;
};

// An explicit input of a function, and what was passed to it in its place: a
// node of its own (or `given` itself), so that what depends on it can be told
// from what was there before.
struct StandIn {
  mx::array passed;
  mx::array given;
};

// Records how a function that has just returned made `outputs`. MLX does not
// tell when an array was made, so what the function did is taken to be
// - whatever depends on a `passed` that is not `given`, and
// - what nobody but the outputs holds any more.
// Everything else was there before (or is kept by somebody, or has been
// evaluated), and goes into a slot as it is; so does a `passed`. Outputs that
// are not tracers are not recorded. The arrays are as they were afterwards.
Recording record(
    const std::vector<StandIn>& inputs,
    std::vector<mx::array>& outputs);

}  // namespace mlxx
