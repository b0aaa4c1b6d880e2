#pragma once

#include "mlxx/kernels/select.h"
#include "mlxx/models/model.h"

namespace mlxx::generate {

// Computes a few tokens of a model on a GPU and forgets them, so that its code
// is loaded or compiled, and its steps are captured, before anybody waits for
// an answer. Nothing on a CPU. Errors: those of computing.
void warm_up(const models::Model& model, const kernels::Selection& kernels);

}  // namespace mlxx::generate
