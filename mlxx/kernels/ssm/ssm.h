#pragma once

#include <optional>

#include "mlxx/kernels/stateful_primitive.h"

namespace mlxx::kernels {

// The state-space model of Mamba2: per head a state S [Dh, N] that decays by
// one number per token. With dt = clip(softplus(dt_raw + dt_bias)) and
// A = -exp(a_log), for each token and head:
//   S = exp(dt A) S + (dt x) B^T; y = S C + D x
// Reference: Dao, Gu, "Transformers are SSMs: Generalized Models and Efficient
// Algorithms Through Structured State Space Duality" (2024); mlx-lm 0.32.2,
// models/ssm.py.
struct SsmInputs {
  mx::array x;        // [B, L, H, Dh]
  mx::array a_log;    // [H]
  mx::array b;        // [B, L, G, N]; G divides H
  mx::array c;        // [B, L, G, N]
  mx::array d;        // [H]
  mx::array dt;       // [B, L, H], before bias and softplus
  mx::array dt_bias;  // [H]
  float dt_lowest;
  float dt_highest;
  std::optional<mx::array> state;  // [B, H, Dh, N]; absent: zeros
  std::optional<mx::array> mask;   // [B, L] bool: tokens that count
  // [B] int32: tokens that count, from the first on; those beyond are padding.
  // With a mask that says the same.
  std::optional<mx::array> lengths;
};

// {y [B, L, H, Dh], state [B, H, Dh, N] in float32}. A masked token leaves the
// state alone, and its y means nothing. Differentiable in all but mask and
// lengths.
//
// CUDA kernel: the recurrence in one launch, the state in registers.
// Fallback: mlx-lm's chunked form, 256 tokens at a time, for any L. CPU kernel
// (all float32, and the mask's own word on lengths): the recurrence token by
// token with S in the cache of one core, so that a prompt in one call or in
// pieces gives the same bits. The state then lies in memory as [B, H, N, Dh];
// what is returned is a view of it.
// invalid_request for shapes that do not fit.
StatefulResult ssm_scan(const SsmInputs& inputs, const Selection& selection);

// The fallback, with another number of tokens at a time.
StatefulResult plain_ssm_scan(const SsmInputs& inputs, int piece = 256);

// dt [..., H] in float32 after bias, softplus and limits.
mx::array ssm_steps(
    const mx::array& dt,
    const mx::array& bias,
    float lowest,
    float highest);

}  // namespace mlxx::kernels
