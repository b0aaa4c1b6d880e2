#pragma once

#include <memory>

#include "mlxx/core/parameters.h"
#include "mlxx/kernels/select.h"

namespace mlxx::kernels {

// x [..., in] times the transpose of a quantized matrix [out, in], giving
// [..., out] in x's dtype. Uses the packed form if the parameter has one, else
// mx::quantized_matmul exactly as mlx-lm calls it.
mx::array quantized_matmul(const mx::array& x, const Parameter& matrix);

// ids [...] of any integer dtype -> those rows, dequantized, [..., in]. Dtype:
// that of the scales, float32 for a packed form.
mx::array dequantize_rows(const Parameter& matrix, const mx::array& ids);

// Which form of a quantized matrix should be resident. Null: MLX's own (in
// fallback mode, and on GPUs). On the CPU MLX's quantized product is scalar
// code, 30 times slower still with half-precision scales, so there the scales
// become float32 and products of many rows go through a dequantized block.
std::shared_ptr<const PackedWeights> pack_quantized(
    const WeightArrays& arrays,
    const QuantizationSpec& quantization,
    const Selection& selection);

}  // namespace mlxx::kernels
