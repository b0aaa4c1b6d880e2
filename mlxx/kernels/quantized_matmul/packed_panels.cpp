#include "mlxx/kernels/quantized_matmul/packed_panels.h"

#include <mlx/backend/cpu/encoder.h>
#include <mlx/primitives.h>

#include "mlxx/base/error.h"

namespace mlxx::kernels {
namespace {

using Matrix = std::shared_ptr<const PanelMatrix>;

[[noreturn]] void fail_off_cpu(const char* name) {
  fail(ErrorKind::internal, name, "packed panels are computed on the CPU only");
}

enum class Direction { forward, gradient };

mx::array product(const mx::array& x, const Matrix& matrix, Direction way);

// x [rows..., in] float32, row-contiguous -> [rows..., out]; as the gradient
// [rows..., out] -> [rows..., in].
class PanelMatmul : public mx::UnaryPrimitive {
 public:
  PanelMatmul(mx::Stream stream, Matrix matrix, Direction way)
      : UnaryPrimitive(stream), matrix_(std::move(matrix)), way_(way) {}

  void eval_cpu(const std::vector<mx::array>& inputs, mx::array& out) override {
    out.set_data(mx::allocator::malloc(out.nbytes()));
    const float* x = inputs[0].data<float>();
    float* y = out.data<float>();
    int64_t rows = static_cast<int64_t>(inputs[0].size()) /
        (way_ == Direction::forward ? matrix_->in() : matrix_->out());
    mx::cpu::get_command_encoder(stream()).dispatch(
        [matrix = matrix_, way = way_, x, y, rows] {
          if (way == Direction::forward) {
            matrix->multiply(x, rows, y);
          } else {
            matrix->multiply_transposed(x, rows, y);
          }
        });
  }
  void eval_gpu(const std::vector<mx::array>&, mx::array&) override {
    fail_off_cpu(name());
  }

  // The matrix is a constant; how the other way rounds its activations is not
  // differentiated.
  std::vector<mx::array> vjp(
      const std::vector<mx::array>&,
      const std::vector<mx::array>& cotangents,
      const std::vector<int>&,
      const std::vector<mx::array>&) override {
    return {product(
        cotangents[0],
        matrix_,
        way_ == Direction::forward ? Direction::gradient : Direction::forward)};
  }

  const char* name() const override {
    return "PanelMatmul";
  }
  bool is_equivalent(const mx::Primitive& other) const override {
    const auto& panels = static_cast<const PanelMatmul&>(other);
    return matrix_ == panels.matrix_ && way_ == panels.way_;
  }
  std::vector<mx::Shape> output_shapes(
      const std::vector<mx::array>& inputs) override {
    mx::Shape shape = inputs[0].shape();
    shape.back() = way_ == Direction::forward ? matrix_->out() : matrix_->in();
    return {shape};
  }

 private:
  Matrix matrix_;
  Direction way_;
};

mx::array product(const mx::array& x, const Matrix& matrix, Direction way) {
  mx::array input = mx::contiguous(mx::astype(x, mx::float32));
  mx::Shape shape = x.shape();
  shape.back() = way == Direction::forward ? matrix->out() : matrix->in();
  return mx::array(
      shape,
      mx::float32,
      std::make_shared<PanelMatmul>(
          mx::default_stream(mx::Device::cpu),
          matrix,
          way),
      {input});
}

// ids [...] int32, row-contiguous -> [..., in].
class PanelRows : public mx::UnaryPrimitive {
 public:
  PanelRows(mx::Stream stream, Matrix matrix)
      : UnaryPrimitive(stream), matrix_(std::move(matrix)) {}

  void eval_cpu(const std::vector<mx::array>& inputs, mx::array& out) override {
    out.set_data(mx::allocator::malloc(out.nbytes()));
    const int32_t* ids = inputs[0].data<int32_t>();
    float* y = out.data<float>();
    size_t count = inputs[0].size();
    mx::cpu::get_command_encoder(stream()).dispatch(
        [matrix = matrix_, ids, y, count] {
          for (size_t i = 0; i < count; ++i) {
            matrix->copy_row(ids[i], y + i * matrix->in());
          }
        });
  }
  void eval_gpu(const std::vector<mx::array>&, mx::array&) override {
    fail_off_cpu(name());
  }
  const char* name() const override {
    return "PanelRows";
  }
  bool is_equivalent(const mx::Primitive& other) const override {
    return matrix_ == static_cast<const PanelRows&>(other).matrix_;
  }
  std::vector<mx::Shape> output_shapes(
      const std::vector<mx::array>& inputs) override {
    mx::Shape shape = inputs[0].shape();
    shape.push_back(static_cast<int>(matrix_->in()));
    return {shape};
  }

 private:
  Matrix matrix_;
};

}  // namespace

mx::array PackedPanels::matmul(const mx::array& x) const {
  if (x.ndim() == 0 || x.shape(-1) != matrix_->in()) {
    fail(
        ErrorKind::internal,
        "quantized_matmul",
        "{} input features for a matrix of {} x {}",
        x.ndim() == 0 ? 1 : x.shape(-1),
        matrix_->out(),
        matrix_->in());
  }
  mx::array y = product(x, matrix_, Direction::forward);
  return mx::astype(y, x.dtype());
}

mx::array PackedPanels::take_rows(const mx::array& ids) const {
  mx::array index = mx::contiguous(mx::astype(ids, mx::int32));
  mx::Shape shape = ids.shape();
  shape.push_back(matrix_->in());
  return mx::array(
      shape,
      mx::float32,
      std::make_shared<PanelRows>(mx::default_stream(mx::Device::cpu), matrix_),
      {index});
}

}  // namespace mlxx::kernels
