#pragma once

#include <string>
#include <vector>

#include "mlxx/kernels/cuda_plugin/cuda_plugin.h"
#include "mlxx/models/fused_decoder.h"

namespace mlxx::models {

// A decoder as the CUDA step wants it.
struct CudaWeights {
  kernels::cuda::Decoder decoder;
  std::vector<mx::array> held;  // everything that it points into
};

// Empty, or why the step can't run these modules. Changes nothing.
std::string why_not_on_cuda(
    const FusedDecoder::Parts& parts,
    const kernels::CudaPlugin& plugin);

// Packs every matrix, which then is resident in that form only. Only where
// why_not_on_cuda() has no reason.
CudaWeights pack_for_cuda(
    const FusedDecoder::Parts& parts,
    const kernels::CudaPlugin& plugin);

}  // namespace mlxx::models
