#include "mlxx/adapters/adapter_tensors.h"

#include <cmath>

#include "mlxx/base/error.h"

namespace mlxx::adapters {
namespace {

constexpr int64_t kWidest = 1 << 24;

bool is_float(const SafetensorsEntry& entry) {
  auto dtype = safetensors_mlx_dtype(entry.dtype);
  return dtype && mx::issubdtype(*dtype, mx::floating);
}

void check_sizes(const SafetensorsEntry& entry) {
  for (int64_t size : entry.shape) {
    if (size < 1 || size > kWidest) {
      fail(
          ErrorKind::bad_file,
          "adapter",
          "tensor '{}' has a dimension of {}",
          entry.name,
          size);
    }
  }
}

void check_floats(const SafetensorsEntry& entry, size_t dimensions) {
  if (entry.shape.size() != dimensions || !is_float(entry)) {
    fail(
        ErrorKind::bad_file,
        "adapter",
        "tensor '{}' is {} of {} dimensions, not {} of floats",
        entry.name,
        entry.dtype,
        entry.shape.size(),
        dimensions == 2 ? "a matrix" : "a stack of matrices");
  }
  check_sizes(entry);
}

[[noreturn]] void refuse_shapes(
    const std::string& module,
    const SafetensorsEntry& a,
    const SafetensorsEntry& b,
    int rank) {
  fail(
      ErrorKind::bad_file,
      "adapter",
      "'{}' has matrices of [{}] and [{}], its rank is {}",
      module,
      fmt::join(a.shape, ", "),
      fmt::join(b.shape, ", "),
      rank);
}

// a [experts, r, in], b [experts, out, r].
LowRank load_experts(
    const SafetensorsFile& file,
    const std::string& module,
    const ModuleTensors& tensors,
    int rank,
    double scale) {
  const auto& a = tensors.a->shape;
  const auto& b = tensors.b->shape;
  for (const SafetensorsEntry* entry : {tensors.a, tensors.b}) {
    check_floats(*entry, 3);
  }
  if (a[0] != b[0] || a[1] != rank || b[2] != rank) {
    refuse_shapes(module, *tensors.a, *tensors.b, rank);
  }
  if (tensors.magnitude) {
    fail(
        ErrorKind::unsupported,
        "adapter",
        "'{}' is DoRA of experts, which is not defined",
        module);
  }
  return {
      module,
      load_finite(file, *tensors.a),
      load_finite(file, *tensors.b),
      static_cast<float>(scale),
      std::nullopt};
}

}  // namespace

std::pair<int, int> matrix_shape(const SafetensorsEntry& entry) {
  check_floats(entry, 2);
  return {static_cast<int>(entry.shape[0]), static_cast<int>(entry.shape[1])};
}

mx::array load_finite(
    const SafetensorsFile& file,
    const SafetensorsEntry& entry) {
  mx::array values = file.load(entry);
  if (!mx::all(mx::isfinite(values)).item<bool>()) {
    fail(
        ErrorKind::bad_file,
        "adapter",
        "tensor '{}' has numbers that are not finite",
        entry.name);
  }
  return values;
}

LowRank load_module(
    const SafetensorsFile& file,
    const std::string& module,
    const ModuleTensors& tensors,
    bool transposed,
    bool dora,
    int rank,
    double scale) {
  if (!tensors.a || !tensors.b) {
    fail(
        ErrorKind::bad_file,
        "adapter",
        "'{}' has one of two matrices only",
        module);
  }
  if (dora != (tensors.magnitude != nullptr)) {
    fail(
        ErrorKind::bad_file,
        "adapter",
        "'{}' {} a magnitude, which the config {}",
        module,
        dora ? "lacks" : "has",
        dora ? "asks for" : "does not speak of");
  }
  if (!std::isfinite(scale)) {
    fail(
        ErrorKind::bad_file,
        "adapter",
        "'{}' has a scale of {}",
        module,
        scale);
  }
  if (!transposed && tensors.a->shape.size() == 3) {
    return load_experts(file, module, tensors, rank, scale);
  }
  auto [a_rows, a_columns] = matrix_shape(*tensors.a);
  auto [b_rows, b_columns] = matrix_shape(*tensors.b);
  int a_rank = transposed ? a_rows : a_columns;
  int b_rank = transposed ? b_columns : b_rows;
  if (a_rank != rank || b_rank != rank) {
    refuse_shapes(module, *tensors.a, *tensors.b, rank);
  }
  mx::array a = load_finite(file, *tensors.a);
  mx::array b = load_finite(file, *tensors.b);
  LowRank result{
      module,
      transposed ? mx::transpose(a) : a,
      transposed ? mx::transpose(b) : b,
      static_cast<float>(scale),
      std::nullopt};
  if (dora) {
    const SafetensorsEntry& entry = *tensors.magnitude;
    // Of an embedding one for each token, which mounting tells apart.
    bool fits = entry.shape.size() == 1 &&
        (entry.shape[0] == result.b.shape(1) ||
         (!transposed && entry.shape[0] == result.a.shape(0)));
    if (!fits || !is_float(entry)) {
      fail(
          ErrorKind::bad_file,
          "adapter",
          "tensor '{}' is no vector of {} floats",
          entry.name,
          result.b.shape(1));
    }
    result.magnitude = load_finite(file, entry);
  }
  return result;
}

}  // namespace mlxx::adapters
