#pragma once

#include "mlxx/core/mlx.h"

namespace mlxx::kernels {

// Where nucleus sampling cuts: the log-probability of the least likely token
// that has to stay so that the likelier ones have `top_p` of the row's mass.
// logprobs [B, V] float32 -> [B, 1] float32; top_p in (0, 1). The definition
// is mlx-lm's (sample_utils.apply_top_p). Not differentiable.
//
// The fallback sorts the row, 49,152 tokens in about 4 ms on a CPU core. The
// CPU kernel sorts only as many of the likeliest as are needed.
mx::array
top_p_threshold(const mx::array& logprobs, float top_p, bool fallback);

}  // namespace mlxx::kernels
