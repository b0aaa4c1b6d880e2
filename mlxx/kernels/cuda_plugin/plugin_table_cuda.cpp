#include "mlxx/kernels/cuda_plugin/cuda_plugin.h"
#include "mlxx/kernels/cuda_plugin/device_arrays_cuda.h"
#include "mlxx/kernels/cuda_plugin/packed_matrices_cuda.h"
#include "mlxx/kernels/decode_step/cuda/decoder_steps_cuda.h"
#include "mlxx/kernels/decode_step/cuda/token_choice_cuda.h"

// The one symbol that libmlxx_cuda shows.

namespace {

using namespace mlxx::kernels;

constexpr CudaPlugin kPlugin{
    .version = CudaPlugin::kVersion,
    .bytes = sizeof(CudaPlugin),
    .mlx_version = MLXX_MLX_VERSION,
    .mlxx_version = MLXX_VERSION,
    .architectures = MLXX_CUDA_ARCHITECTURES,
    .device_pointer = device_pointer,
    .why_not_run = cuda::why_not_run,
    .kv_block_bytes = cuda::kv_block_bytes,
    .make_matrix = make_cuda_matrix,
    .pack = pack_on_cuda,
    .unpack = unpack_on_cuda,
    .make_decoder = make_cuda_decoder,
    .choose = choose_on_cuda};

}  // namespace

extern "C" __attribute__((visibility("default"))) const CudaPlugin*
mlxx_cuda_plugin() {
  return &kPlugin;
}
