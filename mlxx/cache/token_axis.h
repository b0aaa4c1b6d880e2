#pragma once

#include "mlxx/core/mlx.h"

namespace mlxx::cache {

// Operations along the token axis of [B, K, S, D].

// Tokens from..to.
mx::array slice_tokens(const mx::array& a, int from, int to);

// `a` with `update` [B, K, n, D] written at token `at`. Pass `a` by move: the
// write happens in place if no one else holds the array.
mx::array write_tokens(mx::array a, const mx::array& update, int at);

// Zeros [B, K, tokens, D] with the other axes and the dtype of `like`.
mx::array zero_tokens(const mx::array& like, int tokens);

// Throws internal unless keys and values are [B, K, L, D] and [B, K, L, D2]
// with L > 0, and match `held` (if it is set) in all but L.
void check_append(
    const mx::array& keys,
    const mx::array& values,
    const mx::array* held_keys,
    const mx::array* held_values);

}  // namespace mlxx::cache
