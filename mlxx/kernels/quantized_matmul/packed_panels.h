#pragma once

#include <functional>
#include <memory>
#include <span>

#include "mlxx/core/parameters.h"
#include "mlxx/core/quantized_rows.h"
#include "mlxx/kernels/matmul/gemm.h"
#include "mlxx/kernels/panel_memory.h"
#include "mlxx/kernels/quantized_matmul/prepared_rows.h"
#include "mlxx/kernels/select.h"

namespace mlxx::kernels {

ProductKernels product_kernels(const Selection& selection);

// What one thread needs while it multiplies.
struct PanelScratch {
  std::vector<float> numbers;  // unpacked
  std::unique_ptr<ByteScratch> bytes;
  std::vector<float> scales;
  std::vector<float> biases;
};

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

  // The same bytes as from MLX's form of these rows, in one pass. Null if the
  // smallest form that loses nothing is another than that of the rows: a
  // number is no finite float16, or biases need not be kept after all.
  static std::shared_ptr<const PanelMatrix> from_rows(
      const QuantizedRows& rows,
      const Selection& selection);

  // Of the size that these arrays, whose numbers are not looked at, would be
  // packed to at most, and without memory of its own: nothing may be computed
  // with it. As the first two in when it may be called.
  static std::shared_ptr<const PanelMatrix> without_numbers(
      const WeightArrays& arrays,
      const std::optional<QuantizationSpec>& quantization,
      bool symmetric,
      const Selection& selection);

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

  const PanelLayout& layout() const {
    return layout_;
  }
  int64_t panels() const {
    return (out_ + kLanes - 1) / kLanes;
  }

  // y [rows, out] = x [rows, in] times the transpose.
  void multiply(const float* x, int64_t rows, float* y) const;
  // The gradient in x: x [rows, in] = y [rows, out] times the matrix, whose
  // numbers are dequantized to float32 a few MiB at a time. Exact whatever the
  // form of the activations.
  void multiply_transposed(const float* y, int64_t rows, float* x) const;
  // tile [rows][32] = all rows of `activations`, prepared for this layout,
  // times panel `index`. Outputs past the last one are zero.
  void multiply_panel(
      int64_t index,
      const ActivationRows& activations,
      PanelScratch& scratch,
      float* tile) const;
  // y [in] = row `index` of the matrix; not a number outside it.
  void copy_row(int64_t index, float* y) const;
  // MLX's form: with float32 scales and biases, or the dense numbers in their
  // dtype.
  WeightArrays restore() const;
  // All of it in float32, [out, in].
  mx::array dequantize() const;

 private:
  struct Source;
  // Not filled; data_ is null until allocate().
  PanelMatrix(const PanelLayout& layout, int out, const Selection& selection);
  bool fill(const QuantizedRows& rows);
  void choose_scales(const Source& source);
  void fill_panel(const Source& source, int64_t panel);
  void fill_dense_panel(const char* numbers, int64_t panel);
  void allocate(PanelMemory* memory);
  void on_panels(const std::function<void(int64_t)>& work) const;
  WeightArrays restore_dense() const;
  void multiply_floats(
      int64_t index,
      const ActivationRows& activations,
      PanelScratch& scratch,
      float* tile) const;
  void multiply_bytes(
      int64_t index,
      const ActivationRows& activations,
      PanelScratch& scratch,
      float* tile) const;

  std::byte* panel(int64_t index) const {
    return data_.get() + index * layout_.panel_bytes();
  }

  PanelLayout layout_;
  int out_;
  ProductKernels kernels_;
  GemmMachine gemm_machine_;
  std::shared_ptr<ThreadPool> threads_;
  size_t size_ = 0;
  std::shared_ptr<std::byte> data_;  // aligned to 64 bytes
};

// The form that the CPU keeps of an affine or a dense matrix.
class PackedPanels : public PackedWeights {
 public:
  explicit PackedPanels(std::shared_ptr<const PanelMatrix> matrix)
      : matrix_(std::move(matrix)) {}

  mx::array matmul(const mx::array& x) const override;
  mx::array take_rows(const mx::array& ids) const override;
  const std::shared_ptr<const PanelMatrix>& matrix() const {
    return matrix_;
  }
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
