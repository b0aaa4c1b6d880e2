#pragma once

#include <optional>

#include "mlxx/kernels/stateful_primitive.h"

namespace mlxx::kernels {

// The gated delta rule, a linear attention whose state S [Dv, Dk] forgets by a
// gate and corrects what a key recalls. For each token and value head:
//   S = decay * S; delta = beta * (v - S k); S = S + delta k^T; y = S q
// Reference: Yang, Kautz, Hatamizadeh, "Gated Delta Networks: Improving Mamba2
// with Delta Rule" (2024); mlx-lm 0.32.2, models/gated_delta.py.
struct GatedDeltaInputs {
  mx::array queries;               // [B, T, Hk, Dk]
  mx::array keys;                  // [B, T, Hk, Dk]
  mx::array values;                // [B, T, Hv, Dv]; Hk divides Hv
  mx::array decays;                // [B, T, Hv], or per key [B, T, Hv, Dk]
  mx::array betas;                 // [B, T, Hv]
  std::optional<mx::array> state;  // [B, Hv, Dv, Dk]; absent: zeros, float32
  std::optional<mx::array> mask;   // [B, T] bool: tokens that count
};

// {y [B, T, Hv, Dv] in the queries' dtype, state [B, Hv, Dv, Dk]}. A masked
// token leaves the state alone, and its y means nothing. Differentiable in all
// but the mask. Any T: a prompt in one call or in pieces gives the same state,
// bit for bit.
//
// CUDA kernel: all tokens in one launch, the state in registers.
// Fallback: mlx-lm's operations, token by token. CPU kernel (all float32): the
// same recurrence with S in the cache of one core for all tokens. The state
// then lies in memory as [B, Hv, Dk, Dv]; what is returned is a view of it.
// invalid_request for shapes that do not fit.
StatefulResult gated_delta(
    const GatedDeltaInputs& inputs,
    const Selection& selection);

// How a layer makes the decays [B, T, Hv] in float32 out of its projection
// `a` [B, T, Hv] and the parameters [Hv]: exp(-exp(a_log) * softplus(a +
// bias)). Differentiable.
mx::array gated_delta_decays(
    const mx::array& a,
    const mx::array& a_log,
    const mx::array& bias,
    const Selection& selection);

}  // namespace mlxx::kernels
