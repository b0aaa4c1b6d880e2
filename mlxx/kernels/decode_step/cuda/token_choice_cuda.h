#pragma once

#include "mlxx/kernels/cuda_plugin/cuda_plugin.h"

namespace mlxx::kernels {

// The table's entry of that name.
CudaChoices choose_on_cuda(
    const mx::array& logits,
    std::vector<cuda::TokenSampling> rows);

}  // namespace mlxx::kernels
