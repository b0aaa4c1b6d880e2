#include "op_call.h"

namespace mlxx::ops_oracle {

namespace {

template <typename Function>
Op binary(Function function) {
  return [function](OpCall& call) {
    return std::vector{
        function(call.operand(0), call.operand(1), call.stream())};
  };
}

}  // namespace

#define MLXX_BINARY(name) \
  ops[#name] = binary([](auto... given) { return mx::name(given...); })

void add_binary_ops(Ops& ops) {
  MLXX_BINARY(add);
  MLXX_BINARY(bitwise_and);
  MLXX_BINARY(bitwise_or);
  MLXX_BINARY(bitwise_xor);
  MLXX_BINARY(divide);
  MLXX_BINARY(equal);
  MLXX_BINARY(floor_divide);
  MLXX_BINARY(greater);
  MLXX_BINARY(greater_equal);
  MLXX_BINARY(left_shift);
  MLXX_BINARY(less);
  MLXX_BINARY(less_equal);
  MLXX_BINARY(logaddexp);
  MLXX_BINARY(logical_and);
  MLXX_BINARY(logical_or);
  MLXX_BINARY(maximum);
  MLXX_BINARY(minimum);
  MLXX_BINARY(multiply);
  MLXX_BINARY(not_equal);
  MLXX_BINARY(power);
  MLXX_BINARY(remainder);
  MLXX_BINARY(right_shift);
  MLXX_BINARY(subtract);

  ops["array_equal"] = [](OpCall& call) {
    return std::vector{mx::array_equal(
        call.operand(0),
        call.operand(1),
        call.flag_or("equal_nan", false),
        call.stream())};
  };
  ops["where"] = [](OpCall& call) {
    return std::vector{mx::where(
        call.operand(0),
        call.operand(1),
        call.operand(2),
        call.stream())};
  };
}

}  // namespace mlxx::ops_oracle
