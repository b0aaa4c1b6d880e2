#pragma once

#include "mlxx/kernels/decode_step/cuda/decoder_cuda.h"
#include "mlxx/kernels/decode_step/cuda/device_math.cuh"

namespace mlxx::kernels::cuda {

struct LaunchShape {
  dim3 grid;
  int threads;
  size_t shared = 0;  // bytes, dynamic
  int cluster = 1;    // blocks along x
  bool early = true;  // may start before the previous kernel has ended
};

template <typename... PARAMETERS, typename... ARGUMENTS>
Status launch(
    void (*kernel)(PARAMETERS...),
    const LaunchShape& shape,
    Stream stream,
    const ARGUMENTS&... arguments) {
  // 48 KB with what the kernel has of a fixed size.
  if (shape.shared > 16 * 1024) {
    cudaError_t status = cudaFuncSetAttribute(
        kernel,
        cudaFuncAttributeMaxDynamicSharedMemorySize,
        static_cast<int>(shape.shared));
    if (status != cudaSuccess) {
      return status;
    }
  }
  cudaLaunchConfig_t config = {};
  config.gridDim = shape.grid;
  config.blockDim = dim3(shape.threads);
  config.dynamicSmemBytes = shape.shared;
  config.stream = stream;
  cudaLaunchAttribute attributes[2];
  unsigned count = 0;
  if (shape.early) {
    attributes[count].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[count].val.programmaticStreamSerializationAllowed = 1;
    count++;
  }
  if (shape.cluster > 1) {
    attributes[count].id = cudaLaunchAttributeClusterDimension;
    attributes[count].val.clusterDim.x = shape.cluster;
    attributes[count].val.clusterDim.y = 1;
    attributes[count].val.clusterDim.z = 1;
    count++;
  }
  config.attrs = attributes;
  config.numAttrs = count;
  return cudaLaunchKernelEx(&config, kernel, PARAMETERS(arguments)...);
}

}  // namespace mlxx::kernels::cuda
