#include "op_call.h"

namespace mlxx::ops_oracle {

namespace {

// Over the axis or the axes of the case, or over all.
template <typename Function>
Op reduction(Function function) {
  return [function](OpCall& call) {
    auto x = call.operand(0);
    bool keepdims = call.flag_or("keepdims", false);
    if (call.is_list("axis")) {
      return std::vector{
          function(x, call.integers("axis"), keepdims, call.stream())};
    }
    if (call.has("axis")) {
      return std::vector{
          function(x, call.integer("axis"), keepdims, call.stream())};
    }
    return std::vector{function(x, keepdims, call.stream())};
  };
}

template <typename Function>
Op arg_reduction(Function function) {
  return [function](OpCall& call) {
    auto x = call.operand(0);
    bool keepdims = call.flag_or("keepdims", false);
    return std::vector{
        call.has("axis")
            ? function(x, call.integer("axis"), keepdims, call.stream())
            : function(x, keepdims, call.stream())};
  };
}

// sort and argsort: over one axis, or of the flat array.
template <typename Function>
Op sorting(Function function) {
  return [function](OpCall& call) {
    auto x = call.operand(0);
    return std::vector{
        call.has("axis") ? function(x, call.integer("axis"), call.stream())
                         : function(x, call.stream())};
  };
}

// partition, argpartition and topk: the number comes first.
template <typename Function>
Op selection(const char* number, Function function) {
  return [number, function](OpCall& call) {
    auto x = call.operand(0);
    int n = call.integer(number);
    return std::vector{
        call.has("axis") ? function(x, n, call.integer("axis"), call.stream())
                         : function(x, n, call.stream())};
  };
}

// cumsum and cumprod take a dtype, cummax does not.
template <typename Function>
Op accumulation(Function function) {
  return [function](OpCall& call) {
    auto x = call.operand(0);
    bool reverse = call.flag_or("reverse", false);
    bool inclusive = call.flag_or("inclusive", true);
    auto dtype = call.optional_dtype("dtype");
    return std::vector{
        call.has("axis")
            ? function(
                  x,
                  call.integer("axis"),
                  reverse,
                  inclusive,
                  dtype,
                  call.stream())
            : function(x, reverse, inclusive, dtype, call.stream())};
  };
}

std::vector<mx::array> cummax(OpCall& call) {
  auto x = call.operand(0);
  bool reverse = call.flag_or("reverse", false);
  bool inclusive = call.flag_or("inclusive", true);
  return {
      call.has("axis") ? mx::cummax(
                             x,
                             call.integer("axis"),
                             reverse,
                             inclusive,
                             call.stream())
                       : mx::cummax(x, reverse, inclusive, call.stream())};
}

// Over the axis or the axes of the case, or over all.
std::vector<mx::array> softmax(OpCall& call) {
  auto x = call.operand(0);
  bool precise = call.flag_or("precise", false);
  if (call.is_list("axis")) {
    return {mx::softmax(x, call.integers("axis"), precise, call.stream())};
  }
  if (call.has("axis")) {
    return {mx::softmax(x, call.integer("axis"), precise, call.stream())};
  }
  return {mx::softmax(x, precise, call.stream())};
}

std::vector<mx::array> variance(OpCall& call) {
  auto x = call.operand(0);
  bool keepdims = call.flag_or("keepdims", false);
  int ddof = call.integer_or("ddof", 0);
  return {
      call.has("axis")
          ? mx::var(x, call.integer("axis"), keepdims, ddof, call.stream())
          : mx::var(x, keepdims, ddof, call.stream())};
}

// Of order 2, or of the case's order, over its axis or all elements.
std::vector<mx::array> norm(OpCall& call) {
  auto x = call.operand(0);
  bool keepdims = call.flag_or("keepdims", false);
  std::optional<std::vector<int>> axes;
  if (call.is_list("axis")) {
    axes = call.integers("axis");
  } else if (call.has("axis")) {
    axes = std::vector{call.integer("axis")};
  }
  return {
      call.has("ord") ? mx::linalg::norm(
                            x,
                            call.number("ord"),
                            axes,
                            keepdims,
                            call.stream())
                      : mx::linalg::norm(x, axes, keepdims, call.stream())};
}

}  // namespace

#define MLXX_OP(kind, name) \
  ops[#name] = kind([](auto... given) { return mx::name(given...); })

void add_reduction_ops(Ops& ops) {
  MLXX_OP(reduction, all);
  MLXX_OP(reduction, any);
  MLXX_OP(reduction, logsumexp);
  MLXX_OP(reduction, max);
  MLXX_OP(reduction, mean);
  MLXX_OP(reduction, min);
  MLXX_OP(reduction, prod);
  MLXX_OP(reduction, sum);
  MLXX_OP(arg_reduction, argmax);
  MLXX_OP(arg_reduction, argmin);
  MLXX_OP(sorting, argsort);
  MLXX_OP(sorting, sort);
  MLXX_OP(accumulation, cumprod);
  MLXX_OP(accumulation, cumsum);
  ops["argpartition"] = selection("kth", [](auto... given) {
    return mx::argpartition(given...);
  });
  ops["partition"] =
      selection("kth", [](auto... given) { return mx::partition(given...); });
  ops["topk"] =
      selection("k", [](auto... given) { return mx::topk(given...); });
  ops["cummax"] = cummax;
  ops["linalg::norm"] = norm;
  ops["softmax"] = softmax;
  ops["var"] = variance;
}

}  // namespace mlxx::ops_oracle
