#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "mlxx/core/mlx.h"

namespace mlxx {

// One dtype of MLX under each of its names.
struct DtypeInfo {
  mx::Dtype dtype;
  std::string_view name;         // as MLX and NumPy write it: "bfloat16"
  std::string_view safetensors;  // as safetensors writes it: "BF16"
  int size;                      // bytes of one element
  bool is_float;                 // a real floating point type
};

// All of MLX's dtypes. float64 is for the CPU only: no GPU backend has it.
std::span<const DtypeInfo> dtypes();

// The row of `dtype`.
const DtypeInfo& dtype_info(mx::Dtype dtype);

// "float32".
inline std::string_view dtype_name(mx::Dtype dtype) {
  return dtype_info(dtype).name;
}
inline bool is_float(mx::Dtype dtype) {
  return dtype_info(dtype).is_float;
}

// By either name; "bool_" is MLX's in C++ and also means "bool". Absent for
// any other text.
std::optional<mx::Dtype> find_dtype(std::string_view name);

// As find_dtype(); invalid_request for an unknown name, listing the known ones.
// `place` is where the name stood.
mx::Dtype parse_dtype(std::string_view name, std::string_view place);

}  // namespace mlxx
