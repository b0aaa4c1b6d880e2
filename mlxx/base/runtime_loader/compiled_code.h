#pragma once

namespace mlxx::runtime {

// Where there is an NVIDIA driver: has code that is compiled at first use, by
// the driver from PTX and by MLX from text, kept under MLXX_HOME/cuda instead
// of places that are not ours (MLX's own choice is a folder of a known name
// where everyone may write): in driver/, and in mlx/VERSION-sm_NN/ for the
// first GPU's kind (mlxx::choose_device takes another one's). What
// CUDA_CACHE_PATH and MLX_PTX_CACHE_DIR say stays. Starts the driver; before
// other threads are.
void keep_compiled_code();

}  // namespace mlxx::runtime
