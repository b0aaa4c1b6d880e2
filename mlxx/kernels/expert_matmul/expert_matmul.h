#pragma once

#include <memory>

#include "mlxx/core/parameters.h"
#include "mlxx/kernels/select.h"

namespace mlxx::kernels {

// Products with one matrix of a stack per row: the experts of a layer.
// x [X..., M, in] and indices [I...] of any integer dtype, whose leading axes
// X and I broadcast to R -> y [R..., M, out] in x's dtype, where
// y[r] = x[r] @ experts[indices[r]].T. `sorted` says that the indices never
// fall, which lets MLX choose another kernel.
//
// Uses the packed form if the parameter has one: there rows are grouped by
// expert, each expert's rows are one product, `sorted` has no effect, and a row
// has the same bits whatever else is routed; an index outside the stack gives
// rows of NaN. On CUDA, unless plain operations are asked for,
// device_experts.h. Else mx::gather_mm or mx::gather_qmm exactly as mlx-lm
// calls them; in float32 where dense experts in half precision meet MLX's CPU
// backend, which has no product for these. Differentiable in x. Errors:
// internal if the axes do not fit.
mx::array expert_matmul(
    const mx::array& x,
    const Parameter& experts,
    const mx::array& indices,
    bool sorted);

// Which form of a stack [experts, out, in] should be resident: on the CPU
// panels of each expert (see quantized_matmul.h). Null: MLX's own. A form for
// expert_matmul() alone: it has neither matmul() nor take_rows().
std::shared_ptr<const PackedWeights> pack_experts(
    const WeightArrays& arrays,
    const std::optional<QuantizationSpec>& quantization,
    const Selection& selection);

}  // namespace mlxx::kernels
