#pragma once

#include <memory>

#include "mlxx/core/parameters.h"
#include "mlxx/core/quantized_rows.h"
#include "mlxx/kernels/select.h"

namespace mlxx::kernels {

// x [..., in] times the transpose of a quantized matrix [out, in], giving
// [..., out] in x's dtype. Uses the packed form if the parameter has one; on
// CUDA, unless plain operations are asked for, device_matmul.h; else
// mx::quantized_matmul exactly as mlx-lm calls it.
mx::array quantized_matmul(const mx::array& x, const Parameter& matrix);

// ids [...] of any integer dtype -> those rows, dequantized, [..., in]. Dtype:
// that of the scales, float32 for a packed form.
mx::array dequantize_rows(const Parameter& matrix, const mx::array& ids);

// Which form of a quantized matrix should be resident. Null: MLX's own (in
// fallback mode, and on GPUs). On the CPU MLX's quantized product is scalar
// code, 30 times slower still with half-precision scales: matrices are repacked
// into panels for our own kernels, with which a row's result does not depend on
// the other rows; mxfp8 meets float32 activations, the other modes those of the
// selection. Also null for a matrix whose rows are no whole number of 32
// inputs.
std::shared_ptr<const PackedWeights> pack_quantized(
    const WeightArrays& arrays,
    const QuantizationSpec& quantization,
    const Selection& selection);

// The same from the rows of a file, which saves the way through MLX's form.
// Null: load MLX's form and call pack_quantized().
std::shared_ptr<const PackedWeights> pack_rows(
    const QuantizedRows& rows,
    const Selection& selection);

// As above for a dense matrix [out, in] of any floating dtype. Null: it stays
// as it is. On the CPU panels hold it in its own dtype and are multiplied in
// float32, in the same order for every row; BLAS promises no order.
std::shared_ptr<const PackedWeights> pack_dense(
    const mx::array& dense,
    const Selection& selection);

}  // namespace mlxx::kernels
