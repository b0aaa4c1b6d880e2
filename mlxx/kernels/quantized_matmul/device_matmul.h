#pragma once

#include "mlxx/core/parameters.h"

namespace mlxx::kernels {

// Products with quantized matrices in MLX's form on a GPU, chosen by the number
// of rows: up to kFewRows by a kernel that reads the weights once, more by a
// dense matrix that is made for the product and given back after it. Text for
// CUDA only: Metal's quantized_matmul needs neither.
inline constexpr int kFewRows = 64;

// x [..., in] times the transpose of the matrix [out, in] -> [..., out], in x's
// dtype; that of mx::quantized_matmul where that promotes to another. All rows
// of x are one product, whatever its leading axes. Differentiable in x. What
// the kernels do not cover, and what a graph of varying shapes holds, is
// mx::quantized_matmul on those rows.
mx::array device_quantized_matmul(
    const mx::array& x,
    const WeightArrays& arrays,
    const QuantizationSpec& quantization);

// The matrix [..., out, in] in `dtype`.
mx::array device_dequantize(
    const WeightArrays& arrays,
    const QuantizationSpec& quantization,
    mx::Dtype dtype);

// Whether the kernel for few rows covers this, x being of that dtype: affine
// with 4 or 8 bits, of whole groups of at least 32.
bool covers_few_rows(
    const WeightArrays& arrays,
    const QuantizationSpec& quantization,
    mx::Dtype dtype);

}  // namespace mlxx::kernels
