#include "op_call.h"

namespace mlxx::ops_oracle {

namespace {

std::vector<mx::array> quantize(OpCall& call) {
  return mx::quantize(
      call.operand(0),
      call.optional_integer("group_size"),
      call.optional_integer("bits"),
      call.text_or("mode", "affine"),
      call.optional_array("global_scale"),
      call.stream());
}

std::vector<mx::array> dequantize(OpCall& call) {
  return {mx::dequantize(
      call.operand(0),
      call.operand(1),
      call.optional_operand(2),
      call.optional_integer("group_size"),
      call.optional_integer("bits"),
      call.text_or("mode", "affine"),
      call.optional_array("global_scale"),
      call.optional_dtype("dtype"),
      call.stream())};
}

std::vector<mx::array> quantized_matmul(OpCall& call) {
  return {mx::quantized_matmul(
      call.operand(0),
      call.operand(1),
      call.operand(2),
      call.optional_operand(3),
      call.flag_or("transpose", true),
      call.optional_integer("group_size"),
      call.optional_integer("bits"),
      call.text_or("mode", "affine"),
      call.stream())};
}

// Operands: x, w, scales, biases, lhs_indices, rhs_indices.
std::vector<mx::array> gather_qmm(OpCall& call) {
  return {mx::gather_qmm(
      call.operand(0),
      call.operand(1),
      call.operand(2),
      call.optional_operand(3),
      call.optional_operand(4),
      call.optional_operand(5),
      call.flag_or("transpose", true),
      call.optional_integer("group_size"),
      call.optional_integer("bits"),
      call.text_or("mode", "affine"),
      call.optional_array("global_scale"),
      call.flag_or("sorted_indices", false),
      call.stream())};
}

}  // namespace

void add_quantized_ops(Ops& ops) {
  ops["quantize"] = quantize;
  ops["dequantize"] = dequantize;
  ops["quantized_matmul"] = quantized_matmul;
  ops["gather_qmm"] = gather_qmm;
}

}  // namespace mlxx::ops_oracle
