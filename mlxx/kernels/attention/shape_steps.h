#pragma once

#include "mlxx/kernels/attention/attention.h"

namespace mlxx::kernels {

// Attention of a prompt on CUDA. MLX hands it to cuDNN, which builds a plan for
// every pair of lengths, about a tenth of a second each time: prompts of all
// lengths would always be new ones. So lengths are rounded up and what is added
// is neither seen nor kept.

// Whether this is such a prompt: causal, 16-bit, heads that cuDNN takes, of
// lengths that are not round already.
bool wants_round_lengths(
    const mx::array& queries,
    const DenseView& view,
    const AttentionOptions& options,
    const Selection& selection);

// As plain_attention() with the mask "causal".
mx::array attention_of_round_lengths(
    const mx::array& queries,
    const DenseView& view,
    const AttentionOptions& options);

// The next length up that attention is computed with: steps of an eighth of it
// at most, or of 64.
int round_length(int length);

}  // namespace mlxx::kernels
