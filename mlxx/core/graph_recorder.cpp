#include "mlxx/core/graph_recorder.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <utility>

namespace mlxx {
namespace {

// The order in which MLX's differentiation visits producers, depth first from
// the outputs: those of an input before those that use it.
struct Order {
  std::vector<int> inside;
  std::unordered_map<int, int> outside;  // producer -> its rank
};

Order order_of(
    const TakenApart& parts,
    const std::vector<TakenApart::Part>& outputs) {
  Order order;
  std::unordered_set<int> seen;
  struct Visit {
    int producer;
    size_t next_input;
  };
  std::vector<Visit> path;
  auto enter = [&](int producer) {
    if (!parts[producer].inside) {
      order.outside.emplace(producer, static_cast<int>(order.outside.size()));
    } else if (seen.insert(producer).second) {
      path.push_back({producer, 0});
    }
  };
  for (auto output : outputs) {
    enter(output.producer);
    while (!path.empty()) {
      Visit& visit = path.back();
      const auto& inputs = parts[visit.producer].inputs;
      if (visit.next_input < inputs.size()) {
        enter(inputs[visit.next_input++].producer);
      } else {
        order.inside.push_back(visit.producer);
        path.pop_back();
      }
    }
  }
  return order;
}

RecordedGraph::Node make_node(const TakenApart::Producer& producer) {
  RecordedGraph::Node node;
  node.primitive = producer.arrays[0].primitive_ptr();
  for (const mx::array& a : producer.arrays) {
    node.shapes.push_back(a.shape());
    node.dtypes.push_back(a.dtype());
  }
  return node;
}

// Fills the nodes' inputs and the slots. MLX goes on to what was there before
// in the order in which it meets it, and sums what arrives there from the last
// use to the first; so that is the order of the slots.
void connect(
    const TakenApart& parts,
    const Order& order,
    const std::unordered_map<int, int>& node_of,
    Recording& recording) {
  RecordedGraph& graph = recording.graph;
  std::vector<bool> reaches_output(graph.nodes.size());
  for (auto output : graph.outputs) {
    reaches_output[output.node] = true;
  }
  struct Use {
    size_t node;
    size_t input;
    TakenApart::Part part;
  };
  std::vector<Use> uses;
  for (size_t n = graph.nodes.size(); n-- > 0;) {
    const auto& inputs = parts[order.inside[n]].inputs;
    bool reaches =
        reaches_output[n] && !stops_gradient(*graph.nodes[n].primitive);
    reaches_output[n] = reaches;
    for (size_t i = 0; i < inputs.size(); ++i) {
      auto inside = node_of.find(inputs[i].producer);
      if (inside == node_of.end()) {
        uses.push_back({n, i, inputs[i]});
        graph.nodes[n].inputs.push_back({RecordedGraph::Value::kSlot, -1});
      } else {
        graph.nodes[n].inputs.push_back({inside->second, inputs[i].position});
        reaches_output[inside->second] =
            reaches_output[inside->second] || reaches;
      }
    }
  }
  std::ranges::stable_sort(uses, {}, [&](const Use& use) {
    return order.outside.at(use.part.producer);
  });
  for (const Use& use : uses) {
    RecordedGraph::Node& node = graph.nodes[use.node];
    node.inputs[use.input].position = static_cast<int>(recording.slots.size());
    const mx::array& kept = parts.array_of(use.part);
    recording.slots.push_back(
        reaches_output[use.node]
            ? kept
            : mx::stop_gradient(kept, node.primitive->stream()));
  }
  graph.slot_count = recording.slots.size();
}

// Those of `order` that MLX would find on a way from what was there before to
// an output.
std::unordered_set<int> with_gradient(
    const TakenApart& parts,
    const std::vector<int>& order) {
  std::unordered_set<int> found;
  for (int producer : order) {
    const auto& inputs = parts[producer].inputs;
    if (!stops_gradient(parts[producer].arrays[0].primitive()) &&
        std::ranges::any_of(inputs, [&](TakenApart::Part input) {
          return !parts[input.producer].inside ||
              found.contains(input.producer);
        })) {
      found.insert(producer);
    }
  }
  return found;
}

}  // namespace

Recording record(
    const std::vector<StandIn>& inputs,
    std::vector<mx::array>& outputs) {
  Recording recording;
  recording.output_of.assign(outputs.size(), -1);
  TakenApart parts(inputs);
  std::vector<size_t> traced;
  std::vector<TakenApart::Part> roots;
  mx::array blank(false);
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i].is_tracer()) {
      traced.push_back(i);
      roots.push_back(parts.add_root(std::exchange(outputs[i], blank)));
    }
  }
  parts.find_inside();

  std::unordered_set<int> differentiable =
      with_gradient(parts, order_of(parts, roots).inside);
  std::vector<TakenApart::Part> recorded;
  std::unordered_map<std::uintptr_t, int> output_of;
  for (size_t k = 0; k < roots.size(); ++k) {
    mx::array& output = outputs[traced[k]];
    output = parts.array_of(roots[k]);
    if (differentiable.contains(roots[k].producer) &&
        mx::issubdtype(output.dtype(), mx::inexact)) {
      auto [known, is_new] =
          output_of.emplace(output.id(), static_cast<int>(recorded.size()));
      if (is_new) {
        recorded.push_back(roots[k]);
      }
      recording.output_of[traced[k]] = known->second;
    }
  }
  Order order = order_of(parts, recorded);
  std::unordered_map<int, int> node_of;
  for (int producer : order.inside) {
    node_of.emplace(producer, static_cast<int>(recording.graph.nodes.size()));
    recording.graph.nodes.push_back(make_node(parts[producer]));
  }
  for (TakenApart::Part output : recorded) {
    recording.graph.outputs.push_back(
        {node_of.at(output.producer), output.position});
  }
  connect(parts, order, node_of, recording);
  return recording;
}

}  // namespace mlxx
