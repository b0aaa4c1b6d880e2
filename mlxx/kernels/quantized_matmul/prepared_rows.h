#pragma once

#include <memory>
#include <vector>

#include "mlxx/kernels/quantized_matmul/byte_kernels.h"

namespace mlxx::kernels {

// The kernels of one instruction set that products need, and the form of the
// activations where a matrix is quantized.
struct ProductKernels {
  const PanelKernels* floats;
  const ByteKernels* bytes;
  ActivationForm form;  // of quantized matrices; others take float32

  ActivationForm form_for(const PanelLayout& layout) const {
    return layout.is_dense() || layout.codes == Codes::e4m3
        ? ActivationForm::float32
        : form;
  }
};

// Rows of activations in every form that the matrices they meet ask for.
// Memory is kept from one use to the next.
class PreparedRows {
 public:
  // Forms that a set of matrices needs.
  class Needs {
   public:
    void add(const PanelLayout& layout, const ProductKernels& kernels);

   private:
    friend class PreparedRows;
    bool floats_ = false;
    bool bytes_[2] = {};  // by ByteOrder
  };

  explicit PreparedRows(const ProductKernels& kernels) : kernels_(kernels) {}

  // What follows are rows of `in` numbers, a multiple of 32.
  void start(int64_t rows, int64_t in, const Needs& needs);
  // x [in]. Any thread, each row by one.
  void prepare(int64_t row, const float* x);
  // As a matrix of that layout takes them.
  ActivationRows view(const PanelLayout& layout) const;

 private:
  struct Slot {
    std::vector<float> numbers;  // [rows, in]
    std::vector<int8_t> high;
    std::vector<int8_t> low;
    std::vector<float> scales;  // [rows, in / 32]
    std::vector<float> sums;
    std::vector<int32_t> byte_sums;  // [rows, in / 32][2]
  };

  ProductKernels kernels_;
  Needs needs_;
  int64_t rows_ = 0;
  int64_t in_ = 0;
  Slot floats_;
  Slot bytes_[2];
};

}  // namespace mlxx::kernels
