#pragma once

#include "mlxx/core/parameters.h"
#include "mlxx/kernels/activation/activation.h"
#include "mlxx/kernels/select.h"

namespace mlxx::kernels {

// How an expert's gate meets its other half: function(gate) * up, or without a
// gate function(up). Clamped as gpt_oss has it, whatever the function: with
// gate at most 7 and up within +-7, (up + 1) * gate * sigmoid(1.702 * gate).
struct ExpertActivation {
  Activation function = Activation::silu;
  bool clamped = false;
};

// The stacks of a layer's experts, with biases or without any.
struct ExpertMlpWeights {
  const Parameter* gate;  // [experts, inner, in]; null: experts without a gate
  const Parameter* up;    // [experts, inner, in]
  const Parameter* down;  // [experts, in, inner]
  // [experts, inner] twice and [experts, in]; all or none of the stacks' own.
  const Parameter* gate_bias = nullptr;
  const Parameter* up_bias = nullptr;
  const Parameter* down_bias = nullptr;
};

// Whether expert_mlp() computes this: all stacks packed for the CPU. A clamped
// activation needs a gate.
bool expert_mlp_covers(
    const ExpertMlpWeights& weights,
    const Selection& selection);

// A mixture of experts in one operation: for each token the sum over its k
// experts of weight * down(activation(gate(x), up(x))). x [..., in], experts
// [..., k] of any integer dtype, weights [..., k] -> [..., in] in x's dtype,
// computed in float32. A token's bits do not depend on other tokens. An expert
// that is not there gives rows of NaN. Differentiable in x and weights.
// There is no fallback: where it does not cover, expert_matmul() and plain
// operations do the same.
mx::array expert_mlp(
    const mx::array& x,
    const mx::array& experts,
    const mx::array& weights,
    const ExpertMlpWeights& stacks,
    ExpertActivation activation,
    const Selection& selection);

}  // namespace mlxx::kernels
