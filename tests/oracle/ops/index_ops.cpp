#include "op_call.h"

namespace mlxx::ops_oracle {

namespace {

std::vector<mx::array> take(OpCall& call) {
  auto x = call.operand(0);
  if (call.has("index")) {
    int index = call.integer("index");
    return {
        call.has("axis")
            ? mx::take(x, index, call.integer("axis"), call.stream())
            : mx::take(x, index, call.stream())};
  }
  auto indices = call.operand(1);
  return {
      call.has("axis")
          ? mx::take(x, indices, call.integer("axis"), call.stream())
          : mx::take(x, indices, call.stream())};
}

// A start of the case's numbers ("start", "stop", "strides"), or an array of
// starts for the given axes, which one compiled graph serves at every step.
std::vector<mx::array> slice(OpCall& call) {
  auto x = call.operand(0);
  if (call.operand_count() == 2) {
    return {mx::slice(
        x,
        call.operand(1),
        call.integers("axes"),
        call.shape("slice_size"),
        call.stream())};
  }
  auto start = call.shape("start");
  auto stop = call.shape("stop");
  if (call.has("strides")) {
    return {mx::slice(x, start, stop, call.shape("strides"), call.stream())};
  }
  return {mx::slice(x, start, stop, call.stream())};
}

std::vector<mx::array> slice_update(OpCall& call) {
  auto x = call.operand(0);
  auto update = call.operand(1);
  if (call.operand_count() == 3) {
    return {mx::slice_update(
        x,
        update,
        call.operand(2),
        call.integers("axes"),
        call.stream())};
  }
  auto start = call.shape("start");
  auto stop = call.shape("stop");
  if (call.has("strides")) {
    return {mx::slice_update(
        x,
        update,
        start,
        stop,
        call.shape("strides"),
        call.stream())};
  }
  return {mx::slice_update(x, update, start, stop, call.stream())};
}

}  // namespace

void add_index_ops(Ops& ops) {
  ops["take"] = take;
  ops["slice"] = slice;
  ops["slice_update"] = slice_update;
  ops["scatter_add_axis"] = [](OpCall& call) {
    return std::vector{mx::scatter_add_axis(
        call.operand(0),
        call.operand(1),
        call.operand(2),
        call.integer("axis"),
        call.stream())};
  };
  ops["take_along_axis"] = [](OpCall& call) {
    return std::vector{mx::take_along_axis(
        call.operand(0),
        call.operand(1),
        call.integer("axis"),
        call.stream())};
  };
  ops["put_along_axis"] = [](OpCall& call) {
    return std::vector{mx::put_along_axis(
        call.operand(0),
        call.operand(1),
        call.operand(2),
        call.integer("axis"),
        call.stream())};
  };
}

}  // namespace mlxx::ops_oracle
