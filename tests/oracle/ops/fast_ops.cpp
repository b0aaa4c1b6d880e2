#include "op_call.h"

namespace mlxx::ops_oracle {

namespace {

std::vector<mx::array> rms_norm(OpCall& call) {
  return {mx::fast::rms_norm(
      call.operand(0),
      call.optional_operand(1),
      static_cast<float>(call.number("eps")),
      call.stream())};
}

std::vector<mx::array> layer_norm(OpCall& call) {
  return {mx::fast::layer_norm(
      call.operand(0),
      call.optional_operand(1),
      call.optional_operand(2),
      static_cast<float>(call.number("eps")),
      call.stream())};
}

// The offset is a number or an array; freqs replaces base.
std::vector<mx::array> rope(OpCall& call) {
  auto x = call.operand(0);
  int dims = call.integer("dims");
  bool traditional = call.flag_or("traditional", false);
  auto base = call.optional_number("base");
  auto scale = static_cast<float>(call.number("scale"));
  auto freqs = call.optional_array("freqs");
  if (call.has("offset_array")) {
    auto offset = *call.optional_array("offset_array");
    return {mx::fast::rope(
        x,
        dims,
        traditional,
        base,
        scale,
        offset,
        freqs,
        call.stream())};
  }
  return {mx::fast::rope(
      x,
      dims,
      traditional,
      base,
      scale,
      call.integer("offset"),
      freqs,
      call.stream())};
}

std::vector<mx::array> attention(OpCall& call) {
  return {mx::fast::scaled_dot_product_attention(
      call.operand(0),
      call.operand(1),
      call.operand(2),
      static_cast<float>(call.number("scale")),
      call.text_or("mask_mode", ""),
      call.optional_array("mask"),
      call.optional_array("sinks"),
      call.flag_or("force_fused", false),
      call.stream())};
}

}  // namespace

void add_fast_ops(Ops& ops) {
  ops["fast::layer_norm"] = layer_norm;
  ops["fast::rms_norm"] = rms_norm;
  ops["fast::rope"] = rope;
  ops["fast::scaled_dot_product_attention"] = attention;
}

}  // namespace mlxx::ops_oracle
