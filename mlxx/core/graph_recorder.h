#pragma once

#include <vector>

#include "mlxx/core/recorded_graph.h"
#include "mlxx/core/taken_apart.h"

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

// Records how a function that has just returned made `outputs` out of what was
// there before (see TakenApart). Not recorded are outputs that the function did
// not make, that are not tracers, or that no gradient comes through: behind a
// stop_gradient, or of an integer dtype. (To MLX all outputs of a node depend
// on all its inputs, and it throws where an index does.)
Recording record(
    const std::vector<StandIn>& inputs,
    std::vector<mx::array>& outputs);

}  // namespace mlxx
