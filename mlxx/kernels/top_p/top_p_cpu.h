#pragma once

#include "mlxx/core/mlx.h"

namespace mlxx::kernels {

// As top_p_threshold, on a CPU stream. `probs` is exp(logprobs) and `total`
// [B, 1] its sums, so that MLX's vectorised exp does that part.
mx::array top_p_threshold_cpu(
    const mx::array& logprobs,
    const mx::array& probs,
    const mx::array& total,
    float top_p,
    mx::Stream stream);

}  // namespace mlxx::kernels
