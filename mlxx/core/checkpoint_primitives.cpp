#include "mlxx/core/checkpoint_primitives.h"

#include <unordered_map>
#include <utility>

#include "mlxx/core/alias.h"

namespace mlxx {
namespace {

using Arrays = std::vector<mx::array>;

mx::Stream stream_of(const mx::array& a) {
  return a.has_primitive() ? a.primitive().stream()
                           : mx::default_stream(mx::default_device());
}

// The inputs are the graph's slots, then its outputs as already computed.
class Recomputed : public mx::Primitive {
 public:
  Recomputed(mx::Stream stream, std::shared_ptr<const RecordedGraph> graph)
      : Primitive(stream), graph_(std::move(graph)) {}

  void eval_cpu(const Arrays& inputs, Arrays& outputs) override {
    wait_for_cpu_queue(stream(), outputs[0].nbytes());
    share(inputs, outputs);
  }
  void eval_gpu(const Arrays& inputs, Arrays& outputs) override {
    wait_for_cuda_queue(stream(), outputs[0].nbytes());
    share(inputs, outputs);
  }
  Arrays vjp(
      const Arrays& primals,
      const Arrays& cotangents,
      const std::vector<int>& argnums,
      const Arrays& outputs) override;
  Arrays jvp(
      const Arrays& primals,
      const Arrays& tangents,
      const std::vector<int>& argnums) override;
  std::pair<Arrays, std::vector<int>> vmap(
      const Arrays& inputs,
      const std::vector<int>& axes) override;
  std::vector<mx::Shape> output_shapes(const Arrays& inputs) override {
    std::vector<mx::Shape> shapes;
    for (size_t i = graph_->slot_count; i < inputs.size(); ++i) {
      shapes.push_back(inputs[i].shape());
    }
    return shapes;
  }
  const char* name() const override {
    return "Checkpoint";
  }

 private:
  void share(const Arrays& inputs, Arrays& outputs) const {
    for (size_t i = 0; i < outputs.size(); ++i) {
      outputs[i].copy_shared_buffer(inputs[graph_->slot_count + i]);
    }
  }
  Arrays slots(const Arrays& inputs) const {
    return Arrays(inputs.begin(), inputs.begin() + graph_->slot_count);
  }
  bool is_slot(int argnum) const {
    return static_cast<size_t>(argnum) < graph_->slot_count;
  }

  std::shared_ptr<const RecordedGraph> graph_;
};

// Aliases of `slots` that are there after `cotangents`: nothing is made again
// before the backward pass has come that far, and no optimizer can take the
// second making for the first.
Arrays delay(const Arrays& slots, const Arrays& cotangents) {
  std::unordered_map<std::uintptr_t, mx::array> aliases;
  Arrays delayed;
  for (const mx::array& slot : slots) {
    auto known = aliases.find(slot.id());
    if (known == aliases.end()) {
      known = aliases.emplace(slot.id(), alias_after(slot, cotangents)).first;
    }
    delayed.push_back(known->second);
  }
  return delayed;
}

Arrays Recomputed::vjp(
    const Arrays& primals,
    const Arrays& cotangents,
    const std::vector<int>& argnums,
    const Arrays&) {
  // MLX puts zeros where no cotangent has arrived. A gradient of zeros is not
  // always zero (0 / 0), so such outputs must be left out as MLX itself would:
  // of several outputs each is behind an alias, and its cotangent is one too.
  std::vector<std::optional<mx::array>> arrived;
  Arrays first;
  for (const mx::array& cotangent : cotangents) {
    if (cotangents.size() > 1 && !is_alias(cotangent)) {
      arrived.emplace_back();
    } else {
      arrived.emplace_back(cotangent);
      first.push_back(cotangent);
    }
  }
  Arrays delayed = delay(slots(primals), first);
  std::vector<bool> wanted(graph_->slot_count);
  for (int i : argnums) {
    if (is_slot(i)) {
      wanted[i] = true;
    }
  }
  Arrays found = pull_back(*graph_, delayed, wanted, arrived);
  Arrays result;
  size_t next = 0;
  for (int i : argnums) {  // ascending
    result.push_back(
        is_slot(i) ? found[next++] : mx::zeros_like(primals[i], stream()));
  }
  return result;
}

Arrays Recomputed::jvp(
    const Arrays& primals,
    const Arrays& tangents,
    const std::vector<int>& argnums) {
  Arrays varied;
  Arrays slot_tangents;
  std::vector<int> positions;
  for (size_t i = 0; i < argnums.size(); ++i) {
    if (is_slot(argnums[i])) {
      positions.push_back(argnums[i]);
      varied.push_back(primals[argnums[i]]);
      slot_tangents.push_back(tangents[i]);
    }
  }
  auto remake = [&](const Arrays& tracers) {
    Arrays inputs = slots(primals);
    for (size_t i = 0; i < positions.size(); ++i) {
      inputs[positions[i]] = tracers[i];
    }
    return replay(*graph_, inputs);
  };
  return mx::jvp(remake, varied, slot_tangents).second;
}

std::pair<Arrays, std::vector<int>> Recomputed::vmap(
    const Arrays& inputs,
    const std::vector<int>& axes) {
  auto remake = [this](const Arrays& given) { return replay(*graph_, given); };
  std::vector<int> slot_axes(axes.begin(), axes.begin() + graph_->slot_count);
  std::vector<int> output_axes(graph_->outputs.size(), 0);
  return {mx::vmap(remake, slot_axes, output_axes)(slots(inputs)), output_axes};
}

}  // namespace

Arrays recomputed_outputs(
    std::shared_ptr<const RecordedGraph> graph,
    const Arrays& slots,
    const Arrays& outputs) {
  mx::Stream stream = stream_of(outputs[0]);
  Arrays inputs = slots;
  std::vector<mx::Shape> shapes;
  std::vector<mx::Dtype> dtypes;
  for (const mx::array& output : outputs) {
    shapes.push_back(output.shape());
    dtypes.push_back(output.dtype());
    inputs.push_back(mx::stop_gradient(output, stream_of(output)));
  }
  auto primitive = std::make_shared<Recomputed>(stream, std::move(graph));
  if (outputs.size() == 1) {
    return {mx::array(shapes[0], dtypes[0], primitive, inputs)};
  }
  Arrays nodes = mx::array::make_arrays(shapes, dtypes, primitive, inputs);
  for (mx::array& node : nodes) {
    node = alias(node);
  }
  return nodes;
}

}  // namespace mlxx
