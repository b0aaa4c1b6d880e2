#include "op_call.h"

#include <fmt/format.h>

namespace mlxx::ops_oracle {

namespace {

const std::map<std::string, mx::Dtype>& dtypes() {
  static const std::map<std::string, mx::Dtype> kDtypes{
      {"bool", mx::bool_},
      {"uint8", mx::uint8},
      {"uint16", mx::uint16},
      {"uint32", mx::uint32},
      {"uint64", mx::uint64},
      {"int8", mx::int8},
      {"int16", mx::int16},
      {"int32", mx::int32},
      {"int64", mx::int64},
      {"float16", mx::float16},
      {"float32", mx::float32},
      {"bfloat16", mx::bfloat16},
      {"complex64", mx::complex64}};
  return kDtypes;
}

mx::Dtype dtype_named(const std::string& name) {
  auto found = dtypes().find(name);
  if (found == dtypes().end()) {
    throw BrokenCase(fmt::format("no dtype is named '{}'", name));
  }
  return found->second;
}

mx::Shape shape_of(const Json& list) {
  auto values = list.get<std::vector<int>>();
  return {values.begin(), values.end()};
}

// What makes an operand non-contiguous, in the order it is applied.
mx::array apply_view(mx::array array, const Json& step) {
  auto kind = step.at(0).get<std::string>();
  if (kind == "transpose") {
    return mx::transpose(array, step.at(1).get<std::vector<int>>());
  }
  if (kind == "slice") {
    return mx::slice(
        array,
        shape_of(step.at(1)),
        shape_of(step.at(2)),
        shape_of(step.at(3)));
  }
  if (kind == "broadcast") {
    return mx::broadcast_to(array, shape_of(step.at(1)));
  }
  throw BrokenCase(fmt::format("no view is named '{}'", kind));
}

mx::array make_array(const Json& given, const Arrays& arrays) {
  // safetensors holds no array without elements, such come as their shape.
  mx::array result = given.contains("array")
      ? arrays.at(given.at("array").get<std::string>())
      : mx::zeros(
            shape_of(given.at("shape")),
            dtype_named(given.at("dtype").get<std::string>()));
  for (const Json& step : given.at("view")) {
    result = apply_view(result, step);
  }
  return result;
}

}  // namespace

std::string dtype_name(mx::Dtype dtype) {
  for (const auto& [name, known] : dtypes()) {
    if (known == dtype) {
      return name;
    }
  }
  throw BrokenCase("an output's dtype has no name here");
}

OpCall::OpCall(const Json& given, const Arrays& arrays)
    : arguments_(given.at("arguments")), arrays_(arrays) {
  for (const Json& operand : given.at("operands")) {
    if (operand.is_null()) {
      operands_.emplace_back(std::nullopt);
    } else {
      operands_.emplace_back(make_array(operand, arrays));
    }
  }
}

mx::array OpCall::operand(size_t index) {
  auto found = optional_operand(index);
  if (!found) {
    throw BrokenCase(fmt::format("operand {} is missing", index));
  }
  return *found;
}

std::optional<mx::array> OpCall::optional_operand(size_t index) {
  if (index >= operands_.size()) {
    return std::nullopt;
  }
  read_operands_.insert(index);
  return operands_[index];
}

std::vector<mx::array> OpCall::all_operands() {
  std::vector<mx::array> all;
  for (size_t i = 0; i < operands_.size(); ++i) {
    all.push_back(operand(i));
  }
  return all;
}

bool OpCall::has(const char* name) const {
  return arguments_.contains(name) && !arguments_.at(name).is_null();
}

bool OpCall::is_list(const char* name) const {
  return has(name) && arguments_.at(name).is_array();
}

bool OpCall::is_integer(const char* name) const {
  return has(name) && arguments_.at(name).is_number_integer();
}

const Json& OpCall::argument(const char* name) {
  read_arguments_.insert(name);
  return arguments_.at(name);
}

int OpCall::integer(const char* name) {
  return argument(name).get<int>();
}

int OpCall::integer_or(const char* name, int otherwise) {
  return has(name) ? integer(name) : otherwise;
}

std::optional<int> OpCall::optional_integer(const char* name) {
  return has(name) ? std::optional(integer(name)) : std::nullopt;
}

double OpCall::number(const char* name) {
  return argument(name).get<double>();
}

uint64_t OpCall::unsigned_number(const char* name) {
  return argument(name).get<uint64_t>();
}

std::optional<float> OpCall::optional_number(const char* name) {
  return has(name) ? std::optional(static_cast<float>(number(name)))
                   : std::nullopt;
}

bool OpCall::flag_or(const char* name, bool otherwise) {
  return has(name) ? argument(name).get<bool>() : otherwise;
}

std::string OpCall::text_or(const char* name, const std::string& otherwise) {
  return has(name) ? argument(name).get<std::string>() : otherwise;
}

std::vector<int> OpCall::integers(const char* name) {
  return argument(name).get<std::vector<int>>();
}

mx::Shape OpCall::shape(const char* name) {
  return shape_of(argument(name));
}

mx::Dtype OpCall::dtype_or(const char* name, mx::Dtype otherwise) {
  return optional_dtype(name).value_or(otherwise);
}

std::optional<mx::Dtype> OpCall::optional_dtype(const char* name) {
  return has(name)
      ? std::optional(dtype_named(argument(name).get<std::string>()))
      : std::nullopt;
}

std::optional<mx::array> OpCall::optional_array(const char* name) {
  return has(name) ? std::optional(make_array(argument(name), arrays_))
                   : std::nullopt;
}

mx::StreamOrDevice OpCall::stream() {
  auto device = text_or("stream", "");
  if (device == "gpu") {
    return mx::Device(mx::Device::gpu);
  }
  return {};
}

void OpCall::check_all_read() const {
  if (read_operands_.size() != operands_.size()) {
    throw BrokenCase(fmt::format(
        "the binding reads {} of {} operands",
        read_operands_.size(),
        operands_.size()));
  }
  for (const auto& [name, value] : arguments_.items()) {
    if (!value.is_null() && !read_arguments_.contains(name)) {
      throw BrokenCase(fmt::format("the binding does not read '{}'", name));
    }
  }
}

}  // namespace mlxx::ops_oracle
