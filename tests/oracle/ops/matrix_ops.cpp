#include "op_call.h"

namespace mlxx::ops_oracle {

namespace {

std::vector<mx::array> addmm(OpCall& call) {
  return {mx::addmm(
      call.operand(0),
      call.operand(1),
      call.operand(2),
      call.optional_number("alpha").value_or(1.0f),
      call.optional_number("beta").value_or(1.0f),
      call.stream())};
}

std::vector<mx::array> conv1d(OpCall& call) {
  return {mx::conv1d(
      call.operand(0),
      call.operand(1),
      call.integer_or("stride", 1),
      call.integer_or("padding", 0),
      call.integer_or("dilation", 1),
      call.integer_or("groups", 1),
      call.stream())};
}

std::pair<int, int> pair_or(OpCall& call, const char* name, int otherwise) {
  if (!call.has(name)) {
    return {otherwise, otherwise};
  }
  auto given = call.integers(name);
  return {given.at(0), given.at(1)};
}

std::tuple<int, int, int>
triple_or(OpCall& call, const char* name, int otherwise) {
  if (!call.has(name)) {
    return {otherwise, otherwise, otherwise};
  }
  auto given = call.integers(name);
  return {given.at(0), given.at(1), given.at(2)};
}

std::vector<mx::array> conv2d(OpCall& call) {
  return {mx::conv2d(
      call.operand(0),
      call.operand(1),
      pair_or(call, "stride", 1),
      pair_or(call, "padding", 0),
      pair_or(call, "dilation", 1),
      call.integer_or("groups", 1),
      call.stream())};
}

std::vector<mx::array> conv3d(OpCall& call) {
  return {mx::conv3d(
      call.operand(0),
      call.operand(1),
      triple_or(call, "stride", 1),
      triple_or(call, "padding", 0),
      triple_or(call, "dilation", 1),
      call.integer_or("groups", 1),
      call.stream())};
}

}  // namespace

void add_matrix_ops(Ops& ops) {
  ops["addmm"] = addmm;
  ops["conv1d"] = conv1d;
  ops["conv2d"] = conv2d;
  ops["conv3d"] = conv3d;
  ops["gather_mm"] = [](OpCall& call) {
    return std::vector{mx::gather_mm(
        call.operand(0),
        call.operand(1),
        call.optional_operand(2),
        call.optional_operand(3),
        call.flag_or("sorted_indices", false),
        call.stream())};
  };
  ops["hadamard_transform"] = [](OpCall& call) {
    return std::vector{mx::hadamard_transform(
        call.operand(0),
        call.optional_number("scale"),
        call.stream())};
  };
  ops["matmul"] = [](OpCall& call) {
    return std::vector{
        mx::matmul(call.operand(0), call.operand(1), call.stream())};
  };
}

}  // namespace mlxx::ops_oracle
