#include "op_call.h"

namespace mlxx::ops_oracle {

namespace {

template <typename Function>
Op unary(Function function) {
  return [function](OpCall& call) {
    return std::vector{function(call.operand(0), call.stream())};
  };
}

}  // namespace

#define MLXX_UNARY(name) \
  ops[#name] = unary([](auto... given) { return mx::name(given...); })

void add_unary_ops(Ops& ops) {
  MLXX_UNARY(abs);
  MLXX_UNARY(bitwise_invert);
  MLXX_UNARY(ceil);
  MLXX_UNARY(cos);
  MLXX_UNARY(erf);
  MLXX_UNARY(exp);
  MLXX_UNARY(expm1);
  MLXX_UNARY(floor);
  MLXX_UNARY(isfinite);
  MLXX_UNARY(isnan);
  MLXX_UNARY(log);
  MLXX_UNARY(log1p);
  MLXX_UNARY(logical_not);
  MLXX_UNARY(negative);
  MLXX_UNARY(reciprocal);
  MLXX_UNARY(rsqrt);
  MLXX_UNARY(sigmoid);
  MLXX_UNARY(sign);
  MLXX_UNARY(sin);
  MLXX_UNARY(sqrt);
  MLXX_UNARY(square);
  MLXX_UNARY(stop_gradient);
  MLXX_UNARY(tanh);

  ops["round"] = [](OpCall& call) {
    return std::vector{mx::round(
        call.operand(0),
        call.integer_or("decimals", 0),
        call.stream())};
  };
  ops["clip"] = [](OpCall& call) {
    return std::vector{mx::clip(
        call.operand(0),
        call.optional_operand(1),
        call.optional_operand(2),
        call.stream())};
  };
}

}  // namespace mlxx::ops_oracle
