#pragma once

#include <memory>
#include <vector>

#include "mlxx/core/recorded_graph.h"

namespace mlxx {

// `outputs`, which `graph` made from `slots`, as nodes whose gradient makes
// them again: the graph below `outputs` itself is behind stop_gradients, so
// that its values are dropped once it has been evaluated.
std::vector<mx::array> recomputed_outputs(
    std::shared_ptr<const RecordedGraph> graph,
    const std::vector<mx::array>& slots,
    const std::vector<mx::array>& outputs);

}  // namespace mlxx
