#pragma once

#include <string_view>

#include "mlxx/core/mlx.h"

namespace mlxx {

// Sets MLX's compile mode, which is one per process, from MLXX_COMPILE.
// Unset: `no_fuse` on the CPU, where fusing runs a C++ compiler at the first
// fused operation (results are the same bit for bit), and MLX's default on a
// GPU. "fuse" leaves fusing on (see compile_mode.h for how, and for when it
// cannot be); anything else is an invalid_request.
void apply_compile_mode();

// Sets it by name: "disabled", "no_simplify", "no_fuse" or "enabled"; another
// name is an invalid_request. Graphs that a CompiledFunction already has stay
// as they are. "no_fuse" is the way out should fusing ever change a result. On
// the CPU "no_simplify" and "enabled" fuse, which is unsupported without a
// working g++.
void set_compile_mode(std::string_view name);

}  // namespace mlxx
