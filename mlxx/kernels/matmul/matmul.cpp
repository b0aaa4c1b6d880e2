#include "mlxx/kernels/matmul/matmul.h"

#include <algorithm>
#include <vector>

#include "mlxx/base/error.h"
#include "mlxx/core/compiled_function.h"
#include "mlxx/core/device.h"
#include "mlxx/kernels/cpu_primitive.h"
#include "mlxx/kernels/matmul/gemm.h"

namespace mlxx::kernels {
namespace {

bool has_kernel(mx::Dtype dtype) {
  return dtype == mx::float32 || dtype == mx::float16 || dtype == mx::bfloat16;
}

NumberType number_type(mx::Dtype dtype) {
  return dtype == mx::float16 ? NumberType::float16
      : dtype == mx::bfloat16 ? NumberType::bfloat16
                              : NumberType::float32;
}

// Of a matrix whose rows or whose columns are contiguous.
GemmOperand operand(const mx::array& a) {
  bool rows = a.flags().row_contiguous;
  return {
      a.data<void>(),
      number_type(a.dtype()),
      rows ? a.shape(1) : 1,
      rows ? 1 : a.shape(0)};
}

GemmOperand transposed(const GemmOperand& a) {
  return {a.data, a.type, a.column_stride, a.row_stride};
}

// The transpose of the product: few rows and a right matrix in place are
// faster than few columns and a left matrix whose rows must be gathered.
void multiply_few_columns(
    const GemmShape& shape,
    const GemmOperand& a,
    const GemmOperand& b,
    const GemmResult& y,
    const GemmMachine& machine) {
  std::vector<float> other(shape.rows * shape.columns);
  gemm(
      {shape.columns, shape.rows, shape.depth},
      transposed(b),
      right_operand(transposed(a), shape.rows, machine),
      {other.data(), NumberType::float32},
      machine);
  std::vector<float> rounded(y.type == NumberType::float32 ? 0 : other.size());
  float* sums = rounded.empty() ? static_cast<float*>(y.data) : rounded.data();
  for (int64_t row = 0; row < shape.rows; ++row) {
    for (int64_t column = 0; column < shape.columns; ++column) {
      sums[row * shape.columns + column] = other[column * shape.rows + row];
    }
  }
  if (!rounded.empty()) {
    machine.kernels->round(sums, rounded.size(), y.type, y.data);
  }
}

// matmul() where there is a kernel, in that dtype.
mx::array product(
    const mx::array& x,
    const mx::array& matrix,
    mx::Dtype dtype,
    const Selection& selection);

// a [rows, depth] times b [depth, columns] -> [rows, columns] in
// the dtype of `out`.
class DenseMatmul : public CpuPrimitive {
 public:
  explicit DenseMatmul(const Selection& selection)
      : CpuPrimitive(
            "DenseMatmul",
            [](const std::vector<mx::array>& x) {
              return std::vector<mx::array>{mx::matmul(x[0], x[1])};
            }),
        selection_(selection) {}

  void eval_cpu(const std::vector<mx::array>& inputs, mx::array& out) override {
    out.set_data(mx::allocator::malloc(out.nbytes()));
    if (out.size() == 0) {
      return;
    }
    GemmShape shape{out.shape(0), out.shape(1), inputs[0].shape(1)};
    dispatch([shape,
              a = operand(inputs[0]),
              b = operand(inputs[1]),
              y = GemmResult{out.data<void>(), number_type(out.dtype())},
              machine = gemm_machine(selection_)] {
      constexpr int64_t kFewColumns = 24;
      if (shape.columns <= kFewColumns && a.column_stride != 1 &&
          b.column_stride == 1) {
        multiply_few_columns(shape, a, b, y, machine);
      } else {
        gemm(shape, a, right_operand(b, shape.columns, machine), y, machine);
      }
    });
  }

  std::vector<mx::array> vjp(
      const std::vector<mx::array>& primals,
      const std::vector<mx::array>& cotangents,
      const std::vector<int>& argnums,
      const std::vector<mx::array>&) override {
    std::vector<mx::array> gradients;
    for (int argument : argnums) {
      mx::Dtype dtype = primals[argument].dtype();
      gradients.push_back(
          argument == 0 ? product(
                              cotangents[0],
                              mx::transpose(primals[1]),
                              dtype,
                              selection_)
                        : product(
                              mx::transpose(primals[0]),
                              cotangents[0],
                              dtype,
                              selection_));
    }
    return gradients;
  }

  std::vector<mx::Shape> output_shapes(
      const std::vector<mx::array>& inputs) override {
    return {{inputs[0].shape(0), inputs[1].shape(1)}};
  }

 private:
  Selection selection_;
};

mx::array product(
    const mx::array& x,
    const mx::array& matrix,
    mx::Dtype dtype,
    const Selection& selection) {
  constexpr bool kEitherOrder = true;
  mx::Shape shape = x.shape();
  int64_t rows = 1;
  for (size_t axis = 0; axis + 1 < shape.size(); ++axis) {
    rows *= shape[axis];
  }
  mx::array flat = mx::reshape(x, {static_cast<int>(rows), matrix.shape(0)});
  mx::array y(
      mx::Shape{flat.shape(0), matrix.shape(1)},
      dtype,
      std::make_shared<DenseMatmul>(selection),
      {mx::contiguous(flat, kEitherOrder),
       mx::contiguous(matrix, kEitherOrder)});
  shape.back() = matrix.shape(1);
  return mx::reshape(y, shape);
}

}  // namespace

mx::array matmul(
    const mx::array& x,
    const mx::array& matrix,
    const Selection& selection) {
  if (x.ndim() == 0 || matrix.ndim() != 2 || x.shape(-1) != matrix.shape(0)) {
    fail(
        ErrorKind::internal,
        "matmul",
        "{} input features for a matrix with {} axes and {} rows",
        x.ndim() == 0 ? 1 : x.shape(-1),
        matrix.ndim(),
        matrix.ndim() == 0 ? 1 : matrix.shape(0));
  }
  if (!selection.has_cpu_kernels() || !has_kernel(x.dtype()) ||
      !has_kernel(matrix.dtype())) {
    return mx::matmul(x, matrix);
  }
  return product(
      x,
      matrix,
      mx::promote_types(x.dtype(), matrix.dtype()),
      selection);
}

mx::array matmul_transposed(
    const mx::array& x,
    const mx::array& weight,
    const Selection& selection) {
  return matmul(
      x,
      weight.ndim() == 2 ? mx::transpose(weight) : weight,
      selection);
}

namespace {

// MLX's CUDA backend makes a product of each leading index of x.
mx::array rows_of_one_product(const mx::array& x, const mx::array& weight) {
  mx::array transposed = mx::transpose(weight);
  if (x.ndim() < 3 || x.size() == 0 || is_shapeless_tracing()) {
    return mx::matmul(x, transposed);
  }
  int in = x.shape(-1);
  mx::array y = mx::matmul(
      mx::reshape(x, {static_cast<int>(x.size() / in), in}),
      transposed);
  mx::Shape shape = x.shape();
  shape.back() = y.shape(-1);
  return mx::reshape(y, shape);
}

}  // namespace

std::shared_ptr<const DenseProduct> dense_product(const Selection& selection) {
  if (!selection.fallback && backend() == Backend::cuda) {
    return std::make_shared<const DenseProduct>(rows_of_one_product);
  }
  if (!selection.has_cpu_kernels()) {
    return nullptr;
  }
  return std::make_shared<const DenseProduct>(
      [selection](const mx::array& x, const mx::array& weight) {
        return matmul_transposed(x, weight, selection);
      });
}

}  // namespace mlxx::kernels
