#include "mlxx/kernels/matmul/matmul.h"

#include <algorithm>
#include <vector>

#include "mlxx/base/error.h"
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
    float* y,
    const GemmMachine& machine) {
  std::vector<float> other(shape.rows * shape.columns);
  gemm(
      {shape.columns, shape.rows, shape.depth},
      transposed(b),
      right_operand(transposed(a), shape.rows, machine),
      other.data(),
      machine);
  for (int64_t row = 0; row < shape.rows; ++row) {
    for (int64_t column = 0; column < shape.columns; ++column) {
      y[row * shape.columns + column] = other[column * shape.rows + row];
    }
  }
}

// a [rows, depth] times b [depth, columns] -> float32 [rows, columns].
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
              y = out.data<float>(),
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
      mx::array gradient = argument == 0
          ? matmul(cotangents[0], mx::transpose(primals[1]), selection_)
          : matmul(mx::transpose(primals[0]), cotangents[0], selection_);
      gradients.push_back(mx::astype(gradient, primals[argument].dtype()));
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
  constexpr bool kEitherOrder = true;
  mx::Shape shape = x.shape();
  int64_t rows = 1;
  for (size_t axis = 0; axis + 1 < shape.size(); ++axis) {
    rows *= shape[axis];
  }
  mx::array flat = mx::reshape(x, {static_cast<int>(rows), matrix.shape(0)});
  mx::array y = make_lazy(
      {flat.shape(0), matrix.shape(1)},
      std::make_shared<DenseMatmul>(selection),
      {mx::contiguous(flat, kEitherOrder),
       mx::contiguous(matrix, kEitherOrder)});
  shape.back() = matrix.shape(1);
  return mx::astype(
      mx::reshape(y, shape),
      mx::promote_types(x.dtype(), matrix.dtype()));
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

std::shared_ptr<const DenseProduct> dense_product(const Selection& selection) {
  if (!selection.has_cpu_kernels()) {
    return nullptr;
  }
  return std::make_shared<const DenseProduct>(
      [selection](const mx::array& x, const mx::array& weight) {
        return matmul_transposed(x, weight, selection);
      });
}

}  // namespace mlxx::kernels
