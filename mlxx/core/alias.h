#pragma once

#include <vector>

#include "mlxx/core/mlx.h"

namespace mlxx {

// The same values in a node of its own, which shares the memory of `a`; the
// gradient passes, as an alias.
mx::array alias(const mx::array& a);

// As alias(), but there only once `after` are too and, if `a` is large, the CPU
// has done what was queued for it before.
mx::array alias_after(const mx::array& a, const std::vector<mx::array>& after);

bool is_alias(const mx::array& a);

// For use while arrays are evaluated. MLX allocates an operation's output when
// it queues the operation, which on a CPU may be a hundred operations before it
// runs and lets its inputs go; this waits until all have run, if `bytes`, the
// size of an array among them, is worth it. Does nothing where there is a GPU:
// what is queued may then need what is not queued yet.
void wait_for_cpu_queue(mx::Stream stream, size_t bytes);

// The same for a CUDA stream, which lets inputs go when its work is done. Not
// on Metal, where a primitive may not end the command buffer that it is in.
void wait_for_cuda_queue(mx::Stream stream, size_t bytes);

}  // namespace mlxx
