#pragma once

namespace mlxx::runtime {

// Where there is an NVIDIA driver: has code that is compiled at first use, by
// the driver from PTX and by MLX from text, kept under MLXX_HOME/cuda instead
// of places that are not ours (MLX's own choice is a folder of a known name
// where everyone may write). What CUDA_CACHE_PATH and MLX_PTX_CACHE_DIR say
// stays. Before the driver is started and before other threads are.
void keep_compiled_code();

}  // namespace mlxx::runtime
