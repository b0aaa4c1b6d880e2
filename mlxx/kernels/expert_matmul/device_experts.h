#pragma once

#include "mlxx/core/parameters.h"

namespace mlxx::kernels {

// Whether device_expert_matmul() computes this: experts in MLX's form, affine
// with 4 or 8 bits, x in a 16-bit type, a row of x for each index or for each
// run of indices, as nn::SwitchMlp has them.
bool covers_device_experts(
    const mx::array& x,
    const WeightArrays& arrays,
    const QuantizationSpec& quantization,
    const mx::array& indices);

// expert_matmul() on CUDA. Rows sorted by expert share what is read of one: up
// to kRowsOfExpert on average by a kernel, and more by dense matrices that are
// given back at once. Few rows in any order are a block each. Differentiable
// in x.
inline constexpr int kRowsOfExpert = 16;
mx::array device_expert_matmul(
    const mx::array& x,
    const WeightArrays& arrays,
    const QuantizationSpec& quantization,
    const mx::array& indices,
    bool sorted);

}  // namespace mlxx::kernels
