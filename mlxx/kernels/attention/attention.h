#pragma once

#include <optional>
#include <string>

#include "mlxx/kernels/attention/kv_view.h"
#include "mlxx/kernels/select.h"

namespace mlxx::kernels {

// Which keys a query may see. mode "" with no array: all; "causal": the query
// at position i of L sees the first S - L + i + 1; an array is boolean (true:
// seen) or added to the scores, and broadcasts to [B, H, L, S].
struct AttentionMask {
  std::string mode;
  std::optional<mx::array> array = std::nullopt;
};

struct AttentionOptions {
  float scale = 1;  // multiplies q @ k.T
  AttentionMask mask = {};
  // Scores become softcap * tanh(score / softcap), before the mask; 0: they
  // stay.
  float softcap = 0;
  // [H], of a dtype that promotes to q's: one more score per head, of a key
  // without a value.
  std::optional<mx::array> sinks = std::nullopt;
};

// softmax(scale * q @ k.T) @ v. q [B, H, L, D] with H a multiple of the view's
// K heads; result [B, H, L, D] in q's dtype. Differentiable in q, k, v and the
// sinks. Errors: internal for shapes that don't fit.
// Fallback: plain_attention() on the dense layout, as mlx-lm; the rows of a
// BlocksView (gathered) or a RowsView are computed one by one, since their
// lengths differ.
// On the CPU our own kernel computes float32, each query by itself.
mx::array attention(
    const mx::array& queries,
    const KVView& view,
    const AttentionOptions& options,
    const Selection& selection = {});

// The plain operations: mx::fast::scaled_dot_product_attention, or with a
// softcap those of mlx-lm's models/gemma2.py. Keys and values [B, K, S, D].
mx::array plain_attention(
    const mx::array& queries,
    const mx::array& keys,
    const mx::array& values,
    const AttentionOptions& options);

}  // namespace mlxx::kernels
