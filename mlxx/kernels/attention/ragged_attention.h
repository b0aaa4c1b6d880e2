#pragma once

#include <vector>

#include "mlxx/core/mlx.h"
#include "mlxx/kernels/select.h"

namespace mlxx::kernels {

// Texts of different lengths, their tokens one after the other.
struct RaggedAttention {
  std::vector<int> lengths;  // of the texts, in tokens; all above 0
  float scale;               // multiplies q @ k.T
  // A token sees those at a distance of at most this; 0: all.
  int reach = 0;
  bool causal = false;  // and none after itself
};

// softmax(scale * q @ k.T) @ v within each text, without padding and without
// a cache: what an encoder does. queries [T, H, D], keys and values [T, K, D],
// H a multiple of K, T the sum of the lengths; result [T, H, D] in the
// queries' dtype. Differentiable in all three. Fallback:
// mx::fast::scaled_dot_product_attention, once for each run of texts of the
// same length. On the CPU our own kernel computes float32, and a text's result
// has the same bits whatever texts stand beside it.
mx::array ragged_attention(
    const mx::array& queries,
    const mx::array& keys,
    const mx::array& values,
    const RaggedAttention& texts,
    const Selection& selection = {});

}  // namespace mlxx::kernels
