#pragma once

#include <optional>

#include "mlxx/kernels/stateful_primitive.h"

namespace mlxx::kernels {

// A causal convolution over few tokens, each channel by itself, as recurrent
// layers have it before their scan:
//   y[t] = bias + sum over j of weight[j] * in[t + j], then silu if wanted,
// where `in` is the state, that is the W - 1 inputs before x, and then x.
// Reference: mlx-lm 0.32.2, models/mamba2.py, lfm2.py, qwen3_next.py.
struct ShortConvInputs {
  mx::array x;                    // [B, L, C]
  mx::array weight;               // [C, W, 1], W at least 2
  std::optional<mx::array> bias;  // [C]
  bool silu = false;
  std::optional<mx::array> state;  // [B, W - 1, C]; absent: zeros
  // [B] int32: how many of the L tokens count; those beyond are padding and
  // stay out of the new state. Absent: all.
  std::optional<mx::array> lengths;
};

// {y [B, L, C], state [B, W - 1, C]}. Differentiable in x, weight, bias and
// state. Fallback: mx::conv1d on the padded input, as mlx-lm calls it. CPU
// kernel (all float32, W up to 8), and one on CUDA: one pass, channels in
// vectors; a channel has the same bits in one call or in pieces.
// invalid_request for shapes that do not fit.
StatefulResult short_conv(
    const ShortConvInputs& inputs,
    const Selection& selection);

}  // namespace mlxx::kernels
