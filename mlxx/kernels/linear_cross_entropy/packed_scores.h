#pragma once

#include "mlxx/kernels/linear_cross_entropy/linear_cross_entropy.h"

namespace mlxx::kernels {

// Whether packed_scores() computes this: float32 rows, a weight in panels that
// is not trained, no bias.
bool packed_scores_covers(
    const mx::array& rows,
    const LogitForm& form,
    const Selection& selection);

// Scores [N] and, if they are differentiable, the gradient of each in its row,
// [N, E].
std::vector<mx::array> packed_scores(
    const mx::array& rows,
    const mx::array& targets,
    const LogitForm& form,
    const Selection& selection);

}  // namespace mlxx::kernels
