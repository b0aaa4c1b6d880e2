#pragma once

#include "mlxx/kernels/cuda_plugin/cuda_plugin.h"

namespace mlxx::kernels {

// The table's entries of these names.
CudaMatrix make_cuda_matrix(const cuda::PackedMatrix& matrix);
void pack_on_cuda(
    const WeightArrays& part,
    int rows,
    const CudaMatrix& whole,
    cuda::RowOrder order,
    int first);
WeightArrays unpack_on_cuda(
    std::shared_ptr<const CudaMatrix> whole,
    cuda::RowOrder order,
    int first,
    int rows);

}  // namespace mlxx::kernels
