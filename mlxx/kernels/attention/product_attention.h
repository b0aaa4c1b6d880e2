#pragma once

#include "mlxx/kernels/attention/attention.h"

namespace mlxx::kernels {

// Attention of short prompts on CUDA by products in float32 (TF32 where MLX
// allows it, which holds 16-bit numbers exactly). For each new shape, cuDNN
// takes a tenth of a second to plan, and short prompts come in all lengths and
// numbers of rows; products need no plan.

// Whether this is such a prompt: 16-bit, few scores; more for several rows.
bool wants_products(
    const mx::array& queries,
    const DenseView& view,
    const AttentionOptions& options,
    const Selection& selection);

// As plain_attention(), without a softcap and sinks.
mx::array attention_by_products(
    const mx::array& queries,
    const DenseView& view,
    const AttentionOptions& options);

}  // namespace mlxx::kernels
