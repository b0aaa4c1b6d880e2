#pragma once

#include <functional>
#include <memory>
#include <span>

#include "mlxx/core/parameters.h"
#include "mlxx/kernels/quantized_matmul/panel_kernels.h"
#include "mlxx/kernels/select.h"

namespace mlxx::kernels {

// The panels of one matrix [out, in], with what computes on them. Immutable
// once made; the primitives of lazy arrays share it.
class PanelMatrix {
 public:
  // Errors: none; can_pack() says for which matrices it may be called.
  PanelMatrix(
      const WeightArrays& arrays,
      const QuantizationSpec& quantization,
      const Selection& selection);
  PanelMatrix(const mx::array& dense, const Selection& selection);
  PanelMatrix(const PanelMatrix&) = delete;
  PanelMatrix& operator=(const PanelMatrix&) = delete;

  static bool can_pack(
      const WeightArrays& arrays,
      const QuantizationSpec& quantization);
  static bool can_pack(const mx::array& dense);

  int out() const {
    return out_;
  }
  int in() const {
    return static_cast<int>(layout_.in);
  }
  size_t nbytes() const {
    return size_;
  }

  // y [rows, out] = x [rows, in] times the transpose.
  void multiply(const float* x, int64_t rows, float* y) const;
  // y [in] = row `index` of the matrix; not a number outside it.
  void copy_row(int64_t index, float* y) const;
  // MLX's form: with float32 scales and biases, or the dense numbers in their
  // dtype.
  WeightArrays restore() const;
  // All of it in float32, [out, in].
  mx::array dequantize() const;

 private:
  struct Source;
  void choose_scales(const Source& source);
  void fill_panel(const Source& source, int64_t panel);
  void fill_dense_panel(const char* numbers, int64_t panel);
  void allocate();
  void on_panels(const std::function<void(int64_t)>& work) const;
  WeightArrays restore_dense() const;
  void multiply_panels(
      ThreadPool::Range panels,
      const float* x,
      const float* sums,
      int64_t rows,
      float* y) const;

  int64_t panels() const {
    return (out_ + kLanes - 1) / kLanes;
  }
  std::byte* panel(int64_t index) const {
    return data_ + index * layout_.panel_bytes();
  }

  PanelLayout layout_;
  int out_;
  const PanelKernels* kernels_;
  std::shared_ptr<ThreadPool> threads_;
  std::optional<mx::allocator::Data> buffer_;  // MLX's allocator counts it
  size_t size_ = 0;
  std::byte* data_ = nullptr;  // in buffer_, aligned to 64 bytes
};

// The form that the CPU keeps of an affine or a dense matrix.
class PackedPanels : public PackedWeights {
 public:
  explicit PackedPanels(std::shared_ptr<const PanelMatrix> matrix)
      : matrix_(std::move(matrix)) {}

  mx::array matmul(const mx::array& x) const override;
  mx::array take_rows(const mx::array& ids) const override;
  WeightArrays restore() const override {
    return matrix_->restore();
  }
  size_t nbytes() const override {
    return matrix_->nbytes();
  }

 private:
  std::shared_ptr<const PanelMatrix> matrix_;
};

}  // namespace mlxx::kernels
