#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <vector>

#include <nlohmann/json.hpp>

#include "mlxx/base/json.h"
#include "mlxx/core/mlx.h"

namespace mlxx::ops_oracle {

using Arrays = std::unordered_map<std::string, mx::array>;

// The case or its binding is wrong: never taken for the refusal of an op.
class BrokenCase : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// As in Python: "bfloat16".
std::string dtype_name(mx::Dtype dtype);

// One call of an op as ops_oracle.py wrote it: operands in the order of MLX's
// parameters (null where an optional one is left out) and named arguments. A
// binding that leaves something unread is an error, so that no argument of a
// case can be without effect.
class OpCall {
 public:
  OpCall(const Json& given, const Arrays& arrays);

  size_t operand_count() const {
    return operands_.size();
  }
  mx::array operand(size_t index);
  std::optional<mx::array> optional_operand(size_t index);
  std::vector<mx::array> all_operands();

  // Whether the argument is given: null is Python's None and does not count.
  bool has(const char* name) const;
  bool is_list(const char* name) const;
  bool is_integer(const char* name) const;

  int integer(const char* name);
  int integer_or(const char* name, int otherwise);
  std::optional<int> optional_integer(const char* name);
  double number(const char* name);
  uint64_t unsigned_number(const char* name);
  std::optional<float> optional_number(const char* name);
  bool flag_or(const char* name, bool otherwise);
  std::string text_or(const char* name, const std::string& otherwise);
  std::vector<int> integers(const char* name);
  mx::Shape shape(const char* name);
  mx::Dtype dtype_or(const char* name, mx::Dtype otherwise);
  std::optional<mx::Dtype> optional_dtype(const char* name);
  std::optional<mx::array> optional_array(const char* name);

  // The default one, unless the case names a device.
  mx::StreamOrDevice stream();

  // Throws BrokenCase naming what the binding did not read.
  void check_all_read() const;

 private:
  const Json& argument(const char* name);

  std::vector<std::optional<mx::array>> operands_;
  std::set<size_t> read_operands_;
  Json arguments_;
  std::set<std::string> read_arguments_;
  const Arrays& arrays_;
};

using Op = std::function<std::vector<mx::array>(OpCall&)>;

// By MLX's name below mlx::core, as in tests/core/ops.txt.
using Ops = std::map<std::string, Op>;

void add_unary_ops(Ops& ops);
void add_binary_ops(Ops& ops);
void add_reduction_ops(Ops& ops);
void add_shape_ops(Ops& ops);
void add_index_ops(Ops& ops);
void add_matrix_ops(Ops& ops);
void add_quantized_ops(Ops& ops);
void add_fast_ops(Ops& ops);
void add_random_ops(Ops& ops);

}  // namespace mlxx::ops_oracle
