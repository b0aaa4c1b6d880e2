#include "op_call.h"

namespace mlxx::ops_oracle {

namespace {

// Whole numbers without a dtype make int32, others float32.
std::vector<mx::array> arange(OpCall& call) {
  if (call.is_integer("start") && !call.has("dtype")) {
    return {mx::arange(
        call.integer("start"),
        call.integer("stop"),
        call.integer("step"),
        call.stream())};
  }
  double start = call.number("start");
  double stop = call.number("stop");
  double step = call.number("step");
  if (auto dtype = call.optional_dtype("dtype")) {
    return {mx::arange(start, stop, step, *dtype, call.stream())};
  }
  return {mx::arange(start, stop, step, call.stream())};
}

std::vector<mx::array> contiguous(OpCall& call) {
  auto result = mx::contiguous(
      call.operand(0),
      call.flag_or("allow_col_major", false),
      call.stream());
  result.eval();
  auto flags = result.flags();
  bool allowed = flags.row_contiguous ||
      (call.flag_or("allow_col_major", false) && flags.col_contiguous);
  if (!allowed) {
    throw BrokenCase("contiguous left an array that is not contiguous");
  }
  return {result};
}

std::vector<mx::array> transpose(OpCall& call) {
  auto x = call.operand(0);
  return {
      call.has("axes") ? mx::transpose(x, call.integers("axes"), call.stream())
                       : mx::transpose(x, call.stream())};
}

std::vector<mx::array> expand_dims(OpCall& call) {
  auto x = call.operand(0);
  return {
      call.is_list("axis")
          ? mx::expand_dims(x, call.integers("axis"), call.stream())
          : mx::expand_dims(x, call.integer("axis"), call.stream())};
}

std::vector<mx::array> squeeze(OpCall& call) {
  auto x = call.operand(0);
  if (call.is_list("axis")) {
    return {mx::squeeze(x, call.integers("axis"), call.stream())};
  }
  if (call.has("axis")) {
    return {mx::squeeze(x, call.integer("axis"), call.stream())};
  }
  return {mx::squeeze(x, call.stream())};
}

std::vector<mx::array> split(OpCall& call) {
  auto x = call.operand(0);
  if (call.is_list("indices_or_sections")) {
    return mx::split(
        x,
        call.shape("indices_or_sections"),
        call.integer_or("axis", 0),
        call.stream());
  }
  return mx::split(
      x,
      call.integer("indices_or_sections"),
      call.integer_or("axis", 0),
      call.stream());
}

std::vector<mx::array> repeat(OpCall& call) {
  auto x = call.operand(0);
  int repeats = call.integer("repeats");
  return {
      call.has("axis")
          ? mx::repeat(x, repeats, call.integer("axis"), call.stream())
          : mx::repeat(x, repeats, call.stream())};
}

// pad_width: low and high of every axis in turn.
std::vector<mx::array> pad(OpCall& call) {
  std::vector<std::pair<int, int>> widths;
  auto flat = call.integers("pad_width");
  for (size_t i = 0; i + 1 < flat.size(); i += 2) {
    widths.emplace_back(flat[i], flat[i + 1]);
  }
  auto x = call.operand(0);
  auto value = call.optional_array("constant_values").value_or(mx::array(0));
  auto mode = call.text_or("mode", "constant");
  return {mx::pad(x, widths, value, mode, call.stream())};
}

}  // namespace

void add_shape_ops(Ops& ops) {
  ops["arange"] = arange;
  ops["contiguous"] = contiguous;
  ops["expand_dims"] = expand_dims;
  ops["pad"] = pad;
  ops["repeat"] = repeat;
  ops["split"] = split;
  ops["squeeze"] = squeeze;
  ops["transpose"] = transpose;
  ops["astype"] = [](OpCall& call) {
    auto dtype = call.dtype_or("dtype", mx::float32);
    return std::vector{mx::astype(call.operand(0), dtype, call.stream())};
  };
  ops["broadcast_to"] = [](OpCall& call) {
    return std::vector{
        mx::broadcast_to(call.operand(0), call.shape("shape"), call.stream())};
  };
  ops["concatenate"] = [](OpCall& call) {
    return std::vector{mx::concatenate(
        call.all_operands(),
        call.integer_or("axis", 0),
        call.stream())};
  };
  ops["copy"] = [](OpCall& call) {
    return std::vector{mx::copy(call.operand(0), call.stream())};
  };
  ops["flatten"] = [](OpCall& call) {
    return std::vector{mx::flatten(
        call.operand(0),
        call.integer_or("start_axis", 0),
        call.integer_or("end_axis", -1),
        call.stream())};
  };
  ops["full"] = [](OpCall& call) {
    auto shape = call.shape("shape");
    auto value = call.operand(0);
    auto dtype = call.dtype_or("dtype", value.dtype());
    return std::vector{mx::full(shape, value, dtype, call.stream())};
  };
  ops["ones"] = [](OpCall& call) {
    auto dtype = call.dtype_or("dtype", mx::float32);
    return std::vector{mx::ones(call.shape("shape"), dtype, call.stream())};
  };
  ops["reshape"] = [](OpCall& call) {
    return std::vector{
        mx::reshape(call.operand(0), call.shape("shape"), call.stream())};
  };
  ops["stack"] = [](OpCall& call) {
    return std::vector{mx::stack(
        call.all_operands(),
        call.integer_or("axis", 0),
        call.stream())};
  };
  ops["swapaxes"] = [](OpCall& call) {
    return std::vector{mx::swapaxes(
        call.operand(0),
        call.integer("axis1"),
        call.integer("axis2"),
        call.stream())};
  };
  ops["tril"] = [](OpCall& call) {
    return std::vector{
        mx::tril(call.operand(0), call.integer_or("k", 0), call.stream())};
  };
  ops["triu"] = [](OpCall& call) {
    return std::vector{
        mx::triu(call.operand(0), call.integer_or("k", 0), call.stream())};
  };
  ops["zeros"] = [](OpCall& call) {
    auto dtype = call.dtype_or("dtype", mx::float32);
    return std::vector{mx::zeros(call.shape("shape"), dtype, call.stream())};
  };
}

}  // namespace mlxx::ops_oracle
