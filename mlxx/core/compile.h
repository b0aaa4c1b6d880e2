#pragma once

#include "mlxx/core/mlx.h"

namespace mlxx {

// Sets MLX's compile mode, which is one per process, from MLXX_COMPILE.
// Unset: `no_fuse` on the CPU, where fusing runs a C++ compiler at the first
// fused operation (results are the same bit for bit), and MLX's default on a
// GPU. "fuse" leaves fusing on (see compile_mode.h for how, and for when it
// cannot be); anything else is an invalid_request.
void apply_compile_mode();

}  // namespace mlxx
