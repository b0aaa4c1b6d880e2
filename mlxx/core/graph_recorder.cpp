#include "mlxx/core/graph_recorder.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <utility>

namespace mlxx {
namespace {

// Whether it is still to be computed from other arrays.
bool is_lazy(const mx::array& a) {
  return a.status() == mx::array::Status::unscheduled && a.has_primitive();
}

// Whether `a` is the only handle of its array, which must be lazy. Of all that
// MLX makes public only is_donatable() looks at the count, and it wants to see
// a buffer too: one of no bytes is lent to it.
bool is_only_handle(mx::array& a) {
  if (a.data_shared_ptr()) {
    return false;
  }
  mx::Strides strides = a.strides();
  mx::array::Flags flags = a.flags();
  size_t data_size = a.data_size();
  a.set_data(mx::allocator::malloc(0));
  bool only = a.is_donatable();
  mx::array blank(mx::Shape{}, a.dtype(), nullptr, {});
  a.copy_shared_buffer(blank, strides, flags, data_size);
  return only;
}

// A graph with what holds its parts together taken out, so that each array has
// one handle here, and one more for each holder outside. Put together again
// when the object dies.
class TakenApart {
 public:
  // An output of a producer.
  struct Part {
    int producer;
    int position;
  };
  // A primitive with all its outputs, or one array that needs no computing.
  struct Producer {
    std::vector<mx::array> arrays;
    std::vector<Part> inputs;  // if inside
    bool fixed = false;        // known to be outside
    bool inside = false;
    bool waiting = false;  // to be looked at (again)
  };

  explicit TakenApart(const std::vector<StandIn>& inputs);
  ~TakenApart();
  TakenApart(const TakenApart&) = delete;
  TakenApart& operator=(const TakenApart&) = delete;

  // Takes the caller's handle: `root` must be its last one.
  Part add_root(mx::array root);
  void find_inside();

  const Producer& operator[](int producer) const {
    return producers_[producer];
  }
  const mx::array& array_of(Part part) const {
    return producers_[part.producer].arrays[part.position];
  }

 private:
  Part know(const mx::array& a, bool fixed);
  void look_at(int producer);
  bool is_only_ours(Producer& producer);
  void take_apart(int producer);
  void take_apart_all_only_ours();
  bool depends_on_stand_in(const mx::array& a);
  static void link_siblings(std::vector<mx::array>& arrays);

  std::vector<Producer> producers_;
  std::unordered_map<std::uintptr_t, Part> known_;  // by array id
  std::vector<int> waiting_;
  std::unordered_set<std::uintptr_t> stand_ins_;
  std::unordered_set<std::uintptr_t> independent_;  // of stand-ins, for sure
};

TakenApart::TakenApart(const std::vector<StandIn>& inputs) {
  for (const StandIn& input : inputs) {
    know(input.passed, true);
    if (input.passed.id() != input.given.id()) {
      stand_ins_.insert(input.passed.id());
    }
  }
}

TakenApart::~TakenApart() {
  // Nothing is allocated: clear() has kept the room.
  for (Producer& producer : producers_) {
    if (producer.inside) {
      for (mx::array& a : producer.arrays) {
        for (Part input : producer.inputs) {
          a.inputs().push_back(array_of(input));
        }
      }
      link_siblings(producer.arrays);
    }
  }
}

void TakenApart::link_siblings(std::vector<mx::array>& arrays) {
  for (mx::array& a : arrays) {
    for (const mx::array& other : arrays) {
      if (other.id() != a.id()) {
        a.siblings().push_back(other);
      }
    }
  }
}

TakenApart::Part TakenApart::add_root(mx::array root) {
  return know(root, false);
}

TakenApart::Part TakenApart::know(const mx::array& a, bool fixed) {
  if (auto it = known_.find(a.id()); it != known_.end()) {
    return it->second;
  }
  fixed = fixed || !is_lazy(a);
  int index = static_cast<int>(producers_.size());
  Producer& producer = producers_.emplace_back();
  producer.arrays = fixed ? std::vector<mx::array>{a} : a.outputs();
  producer.fixed = fixed;
  for (size_t i = 0; i < producer.arrays.size(); ++i) {
    // An output that is an input of the function is known already.
    known_.emplace(producer.arrays[i].id(), Part{index, static_cast<int>(i)});
  }
  look_at(index);
  return known_.at(a.id());
}

void TakenApart::look_at(int index) {
  Producer& producer = producers_[index];
  if (!producer.fixed && !producer.inside && !producer.waiting) {
    producer.waiting = true;
    waiting_.push_back(index);
  }
}

bool TakenApart::is_only_ours(Producer& producer) {
  if (producer.arrays.size() == 1) {
    return is_only_handle(producer.arrays[0]);
  }
  std::vector<mx::array>& arrays = producer.arrays;
  for (mx::array& a : arrays) {
    a.siblings().clear();
  }
  struct Relink {
    std::vector<mx::array>& arrays;
    ~Relink() {
      link_siblings(arrays);
    }
  } relink{arrays};
  return std::ranges::all_of(arrays, is_only_handle);
}

void TakenApart::take_apart(int index) {
  std::vector<Part> inputs;
  // By index: what know() adds may move the producers.
  for (size_t i = 0; i < producers_[index].arrays[0].inputs().size(); ++i) {
    mx::array input = producers_[index].arrays[0].inputs()[i];
    inputs.push_back(know(input, false));
  }
  Producer& producer = producers_[index];
  producer.inputs = inputs;
  producer.inside = true;
  for (mx::array& a : producer.arrays) {
    a.inputs().clear();
    a.siblings().clear();
  }
  for (Part input : inputs) {
    look_at(input.producer);
  }
}

void TakenApart::take_apart_all_only_ours() {
  while (!waiting_.empty()) {
    int index = waiting_.back();
    waiting_.pop_back();
    producers_[index].waiting = false;
    if (!producers_[index].inside && is_only_ours(producers_[index])) {
      take_apart(index);
    }
  }
}

bool TakenApart::depends_on_stand_in(const mx::array& root) {
  std::vector<const mx::array*> open = {&root};
  std::unordered_set<std::uintptr_t> seen;
  while (!open.empty()) {
    const mx::array& a = *open.back();
    open.pop_back();
    if (stand_ins_.contains(a.id())) {
      return true;
    }
    if (auto it = known_.find(a.id());
        it != known_.end() && producers_[it->second.producer].inside) {
      return true;
    }
    if (is_lazy(a) && !independent_.contains(a.id()) &&
        seen.insert(a.id()).second) {
      for (const mx::array& input : a.inputs()) {
        open.push_back(&input);
      }
    }
  }
  independent_.merge(seen);
  return false;
}

void TakenApart::find_inside() {
  take_apart_all_only_ours();
  // Then what the function has made and somebody holds.
  for (bool found = !stand_ins_.empty(); found;) {
    found = false;
    for (int i = 0; i < static_cast<int>(producers_.size()); ++i) {
      if (!producers_[i].fixed && !producers_[i].inside &&
          depends_on_stand_in(producers_[i].arrays[0])) {
        take_apart(i);
        found = true;
      }
    }
    take_apart_all_only_ours();
  }
}

// Inside producers, those of an input before those that use it: the order in
// which MLX's differentiation visits them, depth first from the outputs.
std::vector<int> in_order(
    const TakenApart& parts,
    const std::vector<TakenApart::Part>& outputs) {
  std::vector<int> order;
  std::unordered_set<int> seen;
  struct Visit {
    int producer;
    size_t next_input;
  };
  std::vector<Visit> path;
  auto enter = [&](int producer) {
    if (parts[producer].inside && seen.insert(producer).second) {
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
        order.push_back(visit.producer);
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

// Fills the nodes' inputs and the slots. MLX sums what arrives at an array from
// the last use to the first, so that is the order of the slots.
void connect(
    const TakenApart& parts,
    const std::vector<int>& order,
    const std::unordered_map<int, int>& node_of,
    Recording& recording) {
  RecordedGraph& graph = recording.graph;
  std::vector<bool> reaches_output(graph.nodes.size());
  for (auto output : graph.outputs) {
    reaches_output[output.node] = true;
  }
  for (size_t n = order.size(); n-- > 0;) {
    RecordedGraph::Node& node = graph.nodes[n];
    bool reaches = reaches_output[n] && !stops_gradient(*node.primitive);
    for (auto input : parts[order[n]].inputs) {
      if (parts[input.producer].inside) {
        int producer = node_of.at(input.producer);
        node.inputs.push_back({producer, input.position});
        reaches_output[producer] = reaches_output[producer] || reaches;
        continue;
      }
      int slot = static_cast<int>(recording.slots.size());
      node.inputs.push_back({RecordedGraph::Value::kSlot, slot});
      const mx::array& kept = parts.array_of(input);
      recording.slots.push_back(
          reaches ? kept : mx::stop_gradient(kept, node.primitive->stream()));
    }
  }
  graph.slot_count = recording.slots.size();
}

}  // namespace

Recording record(
    const std::vector<StandIn>& inputs,
    std::vector<mx::array>& outputs) {
  Recording recording;
  recording.output_of.assign(outputs.size(), -1);
  TakenApart parts(inputs);
  std::vector<size_t> traced;
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i].is_tracer()) {
      traced.push_back(i);
    }
  }
  std::vector<TakenApart::Part> roots;
  mx::array blank(false);
  for (size_t i : traced) {
    roots.push_back(parts.add_root(std::exchange(outputs[i], blank)));
  }
  parts.find_inside();

  std::vector<int> order = in_order(parts, roots);
  std::unordered_map<int, int> node_of;
  for (int producer : order) {
    node_of.emplace(producer, static_cast<int>(recording.graph.nodes.size()));
    recording.graph.nodes.push_back(make_node(parts[producer]));
  }
  std::unordered_map<std::uintptr_t, int> output_of;
  for (size_t k = 0; k < roots.size(); ++k) {
    const mx::array& root = parts.array_of(roots[k]);
    outputs[traced[k]] = root;
    auto node = node_of.find(roots[k].producer);
    if (node == node_of.end()) {
      continue;
    }
    auto [known, is_new] = output_of.emplace(
        root.id(),
        static_cast<int>(recording.graph.outputs.size()));
    if (is_new) {
      recording.graph.outputs.push_back({node->second, roots[k].position});
    }
    recording.output_of[traced[k]] = known->second;
  }
  connect(parts, order, node_of, recording);
  return recording;
}

}  // namespace mlxx
