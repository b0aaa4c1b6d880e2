#pragma once

#include "mlxx/kernels/attention/training_attention.h"

namespace mlxx::kernels {

// Whether MLX has a fused attention with a fused backward pass for this: half
// precision on CUDA, heads of at most 128 and a multiple of 8, each row one
// text of which all tokens are seen.
bool fused_text_attention_covers(
    const mx::array& queries,
    const mx::array& keys,
    const mx::array& values,
    const TrainingAttention& options);

// As training_attention(), by MLX's; its backward pass adds up in any order.
mx::array fused_text_attention(
    const mx::array& queries,
    const mx::array& keys,
    const mx::array& values,
    const TrainingAttention& options);

}  // namespace mlxx::kernels
