#pragma once

namespace mlxx {

// Operations that MLX gives to a GPU at once; it waits where ten such lots are
// not done, and what they read is there until then. Many keep a device busy
// with short operations, few need less memory with long ones.
// MLX_MAX_OPS_PER_BUFFER in the environment goes first. Before MLX's first
// operation, or it is ignored.
void give_gpu_few_operations(int count);

// As the environment says, else MLX's own for CUDA devices of data centers.
int operations_given_to_gpu();

}  // namespace mlxx
