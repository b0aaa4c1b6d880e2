#pragma once

#include "mlxx/core/parameters.h"
#include "mlxx/kernels/select.h"

namespace mlxx::kernels {

// logits = softcap(factor * rows @ weight.T + bias * bias_factor).
struct LogitForm {
  const Parameter* weight;          // [V, E]: dense, quantized or packed
  const Parameter* bias = nullptr;  // [V]; null: none
  float factor = 1;
  float bias_factor = 1;
  float softcap = 0;  // cap * tanh(logit / cap); 0: none
  // Whether gradients reach weight and bias as well. The weight is dense then.
  bool trains_weight = false;
  // Off: there is no gradient, and none is computed.
  bool differentiable = true;
};

// log softmax(logits)[target] of each row: rows [N, E] and targets [N] int32 ->
// [N] float32. Differentiable once. Logits of a few hundred rows are there at
// one time, never [N, V]: the gradient of a row is computed with its score,
// since it is the same but for a factor, and multiplied by that factor later;
// weights that are trained compute the logits twice instead. Reference: Wijmans
// et al., "Cut Your Losses in Large-Vocabulary Language Models".
//
// On the CPU our own kernels compute float32 rows on packed weights, all else
// are MLX operations; numbers are summed up in float32.
// Errors: internal, for shapes that do not fit.
mx::array linear_log_probabilities(
    const mx::array& rows,
    const mx::array& targets,
    const LogitForm& form,
    const Selection& selection = {});

}  // namespace mlxx::kernels
