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
  std::optional<mx::array> array;
};

// softmax(scale * q @ k.T) @ v. q [B, H, L, D] with H a multiple of the view's
// K heads; result [B, H, L, D] in q's dtype. Differentiable in q, k and v.
// Fallback: mx::fast::scaled_dot_product_attention on the dense layout, as
// mlx-lm; the rows of a BlocksView are gathered and computed one by one, since
// their lengths differ. On the CPU our own kernel computes float32 without a
// mask array, each query by itself.
mx::array attention(
    const mx::array& queries,
    const KVView& view,
    float scale,
    const AttentionMask& mask,
    const Selection& selection = {});

}  // namespace mlxx::kernels
