#include "mlxx/kernels/cuda_plugin/device_arrays_cuda.h"

#include <cuda_runtime.h>
#include <mlx/backend/cuda/utils.h>
#include <mlx/primitives.h>

#include "mlxx/base/error.h"

namespace mlxx::kernels {

void* device_pointer(const mx::array& array) {
  return const_cast<void*>(static_cast<const void*>(mx::gpu_ptr<char>(array)));
}

void check(cuda::Status status, std::string_view doing) {
  auto error = static_cast<cudaError_t>(status);
  if (error == cudaSuccess) {
    return;
  }
  ErrorKind kind = error == cudaErrorMemoryAllocation ? ErrorKind::out_of_memory
                                                      : ErrorKind::internal;
  fail(
      kind,
      "CUDA",
      "{} failed: {} ({})",
      doing,
      cudaGetErrorString(error),
      cudaGetErrorName(error));
}

OutputMemory::OutputMemory(mx::Stream stream)
    : zero_(0, mx::uint8), filled_(mx::full({1}, zero_, mx::uint8, stream)) {
  if (std::string_view(filled_.primitive().name()) != "Full") {
    fail(
        ErrorKind::internal,
        "CUDA",
        "MLX fills arrays by '{}', not by Full",
        filled_.primitive().name());
  }
}

void OutputMemory::allocate(mx::array& output) const {
  std::vector<mx::array> outputs{output};  // the same array
  filled_.primitive().eval_gpu({zero_}, outputs);
}

mx::array OutputMemory::make(int bytes) const {
  mx::array made({bytes}, mx::uint8, filled_.primitive_ptr(), {zero_});
  allocate(made);
  return made;
}

mx::Stream default_stream() {
  return mx::default_stream(mx::default_device());
}

void keep_freed_memory(size_t bytes) {
  int device = 0;
  cudaMemPool_t pool = nullptr;
  if (cudaGetDevice(&device) != cudaSuccess ||
      cudaDeviceGetDefaultMemPool(&pool, device) != cudaSuccess) {
    return;  // a device without pools
  }
  uint64_t most = bytes;
  cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &most);
  if (bytes == 0) {
    cudaMemPoolTrimTo(pool, 0);
  }
  cudaGetLastError();  // it is but a wish
}

cuda::Stream committed_stream(mx::Stream stream) {
  auto& encoder = mx::cu::get_command_encoder(stream);
  encoder.device().make_current();
  encoder.commit();
  return static_cast<cudaStream_t>(encoder.stream());
}

}  // namespace mlxx::kernels
