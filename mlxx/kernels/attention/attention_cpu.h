#pragma once

#include "mlxx/kernels/attention/attention.h"

namespace mlxx::kernels {

// Whether attention_cpu() computes this: float32, heads of a multiple of 16, a
// mask of booleans or float32.
bool attention_cpu_covers(
    const mx::array& queries,
    const DenseView& view,
    const AttentionOptions& options,
    const Selection& selection);

// As attention(), on all threads; a query's bits depend on its keys only, not
// on how the prompt was split or on other rows.
mx::array attention_cpu(
    const mx::array& queries,
    const DenseView& view,
    const AttentionOptions& options,
    const Selection& selection);

}  // namespace mlxx::kernels
