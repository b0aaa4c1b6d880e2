#pragma once

#include <memory>
#include <vector>

#include "mlxx/kernels/quantized_matmul/byte_kernels.h"
#include "mlxx/kernels/quantized_matmul/dense_kernels.h"

namespace mlxx::kernels {

// The kernels of one instruction set that products need, and the form of the
// activations.
struct ProductKernels {
  const PanelKernels* floats;
  const ByteKernels* bytes;
  const DenseKernels* dense;
  ActivationForm form;     // of quantized matrices
  bool round_to_bfloat16;  // rows that meet a dense bfloat16 matrix

  // int8 for a dense matrix: rows rounded to bfloat16.
  ActivationForm form_for(const PanelLayout& layout) const {
    if (layout.is_dense()) {
      return round_to_bfloat16 && layout.type == NumberType::bfloat16
          ? ActivationForm::int8
          : ActivationForm::float32;
    }
    return layout.codes == Codes::e4m3 ? ActivationForm::float32 : form;
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
    bool sums_ = false;  // of those
    bool rounded_ = false;
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
  std::vector<uint16_t> rounded_;  // [rows, in]
};

}  // namespace mlxx::kernels
