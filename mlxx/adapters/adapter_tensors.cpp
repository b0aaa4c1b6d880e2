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

}  // namespace

std::pair<int, int> matrix_shape(const SafetensorsEntry& entry) {
  if (entry.shape.size() != 2 || !is_float(entry)) {
    fail(
        ErrorKind::bad_file,
        "adapter",
        "tensor '{}' is {} of {} dimensions, not a matrix of floats",
        entry.name,
        entry.dtype,
        entry.shape.size());
  }
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
  auto [a_rows, a_columns] = matrix_shape(*tensors.a);
  auto [b_rows, b_columns] = matrix_shape(*tensors.b);
  int a_rank = transposed ? a_rows : a_columns;
  int b_rank = transposed ? b_columns : b_rows;
  if (a_rank != rank || b_rank != rank) {
    fail(
        ErrorKind::bad_file,
        "adapter",
        "'{}' has matrices of [{}, {}] and [{}, {}], its rank is {}",
        module,
        a_rows,
        a_columns,
        b_rows,
        b_columns,
        rank);
  }
  if (!std::isfinite(scale)) {
    fail(
        ErrorKind::bad_file,
        "adapter",
        "'{}' has a scale of {}",
        module,
        scale);
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
    if (entry.shape.size() != 1 || !is_float(entry) ||
        entry.shape[0] != result.b.shape(1)) {
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
