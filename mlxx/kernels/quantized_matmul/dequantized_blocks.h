#pragma once

#include "mlxx/core/parameters.h"

namespace mlxx::kernels {

// MLX's packed form with float32 scales. A product of many rows dequantizes a
// block of output features at a time and multiplies it through BLAS; one of
// few rows is left to mx::quantized_matmul. Any quantization mode.
class DequantizedBlocks : public PackedWeights {
 public:
  DequantizedBlocks(
      const WeightArrays& arrays,
      const QuantizationSpec& quantization);

  mx::array matmul(const mx::array& x) const override;
  mx::array take_rows(const mx::array& ids) const override;
  WeightArrays restore() const override {
    return arrays_;
  }
  size_t nbytes() const override;

 private:
  mx::array dequantize(const WeightArrays& rows) const;

  WeightArrays arrays_;
  QuantizationSpec quantization_;
  int in_features_;
};

}  // namespace mlxx::kernels
