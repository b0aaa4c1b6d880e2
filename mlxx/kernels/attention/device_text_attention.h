#pragma once

#include "mlxx/kernels/attention/training_attention.h"

namespace mlxx::kernels {

// Whether kernels of our own take this: half precision on CUDA, heads of at
// most 128 and a multiple of 16, no soft cap and no sinks.
bool device_text_attention_covers(
    const mx::array& queries,
    const mx::array& keys,
    const mx::array& values,
    const TrainingAttention& options);

// As training_attention(), the same bits each time; whole texts and packed
// ones, with a window or without, at the same speed.
mx::array device_text_attention(
    const mx::array& queries,
    const mx::array& keys,
    const mx::array& values,
    const TrainingAttention& options);

}  // namespace mlxx::kernels
