#include "mlxx/core/recorded_graph.h"

#include <algorithm>
#include <string_view>

#include "mlxx/base/error.h"
#include "mlxx/core/alias.h"

namespace mlxx {
namespace {

using Value = RecordedGraph::Value;
using Node = RecordedGraph::Node;
// [node][output]
using Arrays = std::vector<std::vector<mx::array>>;

const mx::array&
array_of(const Arrays& made, const std::vector<mx::array>& slots, Value value) {
  return value.node == Value::kSlot ? slots[value.position]
                                    : made[value.node][value.position];
}

std::vector<mx::array> inputs_of(
    const Node& node,
    const Arrays& made,
    const std::vector<mx::array>& slots) {
  std::vector<mx::array> inputs;
  inputs.reserve(node.inputs.size());
  for (Value value : node.inputs) {
    inputs.push_back(array_of(made, slots, value));
  }
  return inputs;
}

std::vector<mx::array> apply(const Node& node, std::vector<mx::array> inputs) {
  if (node.shapes.size() == 1) {
    return {mx::array(
        node.shapes[0],
        node.dtypes[0],
        node.primitive,
        std::move(inputs))};
  }
  return mx::array::make_arrays(
      node.shapes,
      node.dtypes,
      node.primitive,
      inputs);
}

Arrays make_all(
    const RecordedGraph& graph,
    const std::vector<mx::array>& slots) {
  Arrays made;
  made.reserve(graph.nodes.size());
  for (const Node& node : graph.nodes) {
    made.push_back(apply(node, inputs_of(node, made, slots)));
  }
  return made;
}

// Aliases an array when many bytes have been made since the last one, so that
// no more than these are queued at once.
class QueueLimit {
 public:
  mx::array limit(const mx::array& a) {
    bytes_ += a.nbytes();
    if (bytes_ < kMaxBytes) {
      return a;
    }
    bytes_ = 0;
    return alias_after(a, {});
  }

 private:
  static constexpr size_t kMaxBytes = size_t{64} << 20;
  size_t bytes_ = 0;
};

// The cotangents that have arrived so far.
class Cotangents {
 public:
  explicit Cotangents(const RecordedGraph& graph) : slots_(graph.slot_count) {
    for (const Node& node : graph.nodes) {
      outputs_.emplace_back(node.shapes.size());
    }
  }

  std::optional<mx::array>& of(Value value) {
    return value.node == Value::kSlot ? slots_[value.position]
                                      : outputs_[value.node][value.position];
  }
  void add(Value value, const mx::array& cotangent, const mx::Stream& stream) {
    auto& sum = of(value);
    sum = sum ? mx::add(*sum, cotangent, stream) : cotangent;
  }
  bool arrived_at(size_t node) const {
    return std::ranges::any_of(outputs_[node], [](const auto& sum) {
      return sum.has_value();
    });
  }

 private:
  std::vector<std::optional<mx::array>> slots_;
  std::vector<std::vector<std::optional<mx::array>>> outputs_;
};

// Which nodes a gradient has to pass through to reach a wanted slot.
std::vector<bool> nodes_with_gradient(
    const RecordedGraph& graph,
    const std::vector<bool>& wanted) {
  std::vector<bool> found(graph.nodes.size());
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    found[i] = !stops_gradient(*node.primitive) &&
        std::ranges::any_of(node.inputs, [&](Value in) {
          return in.node == Value::kSlot ? wanted[in.position] : found[in.node];
        });
  }
  return found;
}

}  // namespace

bool stops_gradient(const mx::Primitive& primitive) {
  // MLX does not export the class, so its type cannot be asked for.
  return std::string_view(primitive.name()) == "StopGradient";
}

std::vector<mx::array> replay(
    const RecordedGraph& graph,
    const std::vector<mx::array>& slots) {
  Arrays made = make_all(graph, slots);
  std::vector<mx::array> outputs;
  outputs.reserve(graph.outputs.size());
  for (Value value : graph.outputs) {
    outputs.push_back(array_of(made, slots, value));
  }
  return outputs;
}

std::vector<mx::array> pull_back(
    const RecordedGraph& graph,
    const std::vector<mx::array>& slots,
    const std::vector<bool>& wanted,
    const std::vector<std::optional<mx::array>>& cotangents) {
  Arrays made = make_all(graph, slots);
  Cotangents sums(graph);
  for (size_t i = 0; i < graph.outputs.size(); ++i) {
    sums.of(graph.outputs[i]) = cotangents[i];
  }
  QueueLimit queue;
  std::vector<bool> passes = nodes_with_gradient(graph, wanted);
  for (size_t n = graph.nodes.size(); n-- > 0;) {
    if (!passes[n] || !sums.arrived_at(n)) {
      continue;
    }
    const Node& node = graph.nodes[n];
    mx::Stream stream = node.primitive->stream();
    std::vector<mx::array> arrived;
    for (size_t k = 0; k < made[n].size(); ++k) {
      auto& sum = sums.of({static_cast<int>(n), static_cast<int>(k)});
      arrived.push_back(
          sum ? queue.limit(*sum) : mx::zeros_like(made[n][k], stream));
      sum.reset();
    }
    std::vector<int> argnums;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      Value in = node.inputs[i];
      if (in.node == Value::kSlot ? wanted[in.position] : passes[in.node]) {
        argnums.push_back(static_cast<int>(i));
      }
    }
    auto gradients = node.primitive->vjp(
        inputs_of(node, made, slots),
        arrived,
        argnums,
        made[n]);
    if (gradients.size() < argnums.size()) {
      fail(
          ErrorKind::internal,
          "checkpoint",
          "the gradient of {} has {} arrays for {} inputs",
          node.primitive->name(),
          gradients.size(),
          argnums.size());
    }
    for (size_t i = 0; i < argnums.size(); ++i) {
      sums.add(node.inputs[argnums[i]], gradients[i], stream);
    }
  }
  std::vector<mx::array> result;
  for (int slot = 0; slot < static_cast<int>(graph.slot_count); ++slot) {
    if (wanted[slot]) {
      auto& sum = sums.of({Value::kSlot, slot});
      result.push_back(sum ? *sum : mx::zeros_like(slots[slot]));
    }
  }
  return result;
}

}  // namespace mlxx
