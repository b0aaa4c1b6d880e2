#pragma once

#include "mlxx/kernels/attention/training_attention.h"

namespace mlxx::kernels {

// Whether training_attention_cpu() computes this: float32, heads of a multiple
// of 16.
bool training_attention_cpu_covers(
    const mx::array& queries,
    const mx::array& keys,
    const mx::array& values,
    const Selection& selection);

// As training_attention(), on all threads, in tiles of 64 queries and keys. The
// backward pass takes the scores twice: once by queries, once by keys, so that
// each sum belongs to one thread and has one order.
mx::array training_attention_cpu(
    const mx::array& queries,
    const mx::array& keys,
    const mx::array& values,
    const TrainingAttention& options,
    const Selection& selection);

}  // namespace mlxx::kernels
