#pragma once

#include <memory>
#include <optional>
#include <vector>

#include <mlx/primitives.h>

#include "mlxx/core/mlx.h"

namespace mlxx {

// How some arrays were made out of others: operations only, without the arrays
// themselves, so that it keeps no values alive. The arrays that it starts from
// are given at each use, in slots: one slot per use of an array by an
// operation, so that gradients can be summed in the order in which MLX sums
// them.
struct RecordedGraph {
  // Output `position` of a node, or a slot.
  struct Value {
    static constexpr int kSlot = -1;
    int node;
    int position;
  };
  struct Node {
    std::shared_ptr<mx::Primitive> primitive;
    std::vector<mx::Shape> shapes;  // of each output
    std::vector<mx::Dtype> dtypes;
    std::vector<Value> inputs;
  };

  std::vector<Node> nodes;     // those that make an input come first
  std::vector<Value> outputs;  // none of them a slot
  size_t slot_count = 0;
};

// MLX's differentiation goes up to such a node and no further.
bool stops_gradient(const mx::Primitive& primitive);

// The outputs, made anew from `slots`.
std::vector<mx::array> replay(
    const RecordedGraph& graph,
    const std::vector<mx::array>& slots);

// Replays, and differentiates the replay: the cotangents of the slots for which
// `wanted` is true, in ascending order; zeros where no cotangent arrives.
// `cotangents` has one entry per output, empty if nothing depends on it. The
// same calls in the same order as mx::vjp makes for these operations, so the
// same bits come out; only what leads to a wanted slot is asked for a gradient.
// What an operation throws that has no gradient comes out unchanged.
std::vector<mx::array> pull_back(
    const RecordedGraph& graph,
    const std::vector<mx::array>& slots,
    const std::vector<bool>& wanted,
    const std::vector<std::optional<mx::array>>& cotangents);

}  // namespace mlxx
