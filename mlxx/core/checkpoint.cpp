#include "mlxx/core/checkpoint.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "mlxx/base/error.h"
#include "mlxx/core/alias.h"
#include "mlxx/core/checkpoint_primitives.h"
#include "mlxx/core/graph_recorder.h"

namespace mlxx {
namespace {

bool any_tracer(const std::vector<mx::array>& arrays) {
  return std::ranges::any_of(arrays, [](const mx::array& a) {
    return a.is_tracer();
  });
}

// A node of its own for each input that is being differentiated.
std::vector<StandIn> make_stand_ins(const std::vector<mx::array>& inputs) {
  std::vector<StandIn> stand_ins;
  for (const mx::array& input : inputs) {
    stand_ins.push_back({input.is_tracer() ? alias(input) : input, input});
  }
  return stand_ins;
}

void put_back_inputs(
    const std::vector<StandIn>& stand_ins,
    std::vector<mx::array>& arrays) {
  for (mx::array& a : arrays) {
    for (const StandIn& input : stand_ins) {
      if (a.id() == input.passed.id()) {
        a = input.given;
        break;
      }
    }
  }
}

std::vector<mx::array> with_recomputation(
    const std::vector<StandIn>& inputs,
    std::vector<mx::array> outputs) {
  Recording recording = record(inputs, outputs);
  put_back_inputs(inputs, recording.slots);
  put_back_inputs(inputs, outputs);
  std::vector<mx::array> recorded;
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (recording.output_of[i] == static_cast<int>(recorded.size())) {
      recorded.push_back(outputs[i]);
    }
  }
  if (recorded.empty()) {
    return outputs;
  }
  auto graph =
      std::make_shared<const RecordedGraph>(std::move(recording.graph));
  auto nodes = recomputed_outputs(graph, recording.slots, recorded);
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (recording.output_of[i] >= 0) {
      outputs[i] = nodes[recording.output_of[i]];
    }
  }
  return outputs;
}

std::vector<mx::array> call(
    const ArrayFunction& function,
    const std::vector<mx::array>& inputs) {
  std::vector<StandIn> stand_ins = make_stand_ins(inputs);
  std::vector<mx::array> passed;
  for (const StandIn& input : stand_ins) {
    passed.push_back(input.passed);
  }
  std::vector<mx::array> outputs = function(passed);
  if (!any_tracer(outputs)) {
    return outputs;
  }
  return with_recomputation(stand_ins, std::move(outputs));
}

}  // namespace

ArrayFunction checkpointed(ArrayFunction function) {
  if (!function) {
    fail(ErrorKind::invalid_request, "checkpoint", "there is no function");
  }
  return
      [function = std::move(function)](const std::vector<mx::array>& inputs) {
        return call(function, inputs);
      };
}

}  // namespace mlxx
