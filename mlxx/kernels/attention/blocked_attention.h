#pragma once

#include "mlxx/kernels/attention/seen_tokens.h"
#include "mlxx/kernels/attention/training_attention.h"

namespace mlxx::kernels {

// As training_attention(), by MLX operations on some queries at a time, of
// every dtype and on every device. Scores are in the queries' dtype, what is
// summed up over them in float32.
mx::array blocked_attention(
    const mx::array& queries,
    const mx::array& keys,
    const mx::array& values,
    const TrainingAttention& options);

}  // namespace mlxx::kernels
