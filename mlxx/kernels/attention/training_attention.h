#pragma once

#include <optional>
#include <vector>

#include "mlxx/core/mlx.h"
#include "mlxx/kernels/select.h"

namespace mlxx::kernels {

// Tokens [begin, end) of a packed row that are one text, or the end of one that
// begins with all tokens of `parent`.
struct RowSegment {
  int begin = 0;
  int end = 0;
  int parent = -1;  // index of an earlier segment; -1: none

  bool operator==(const RowSegment&) const = default;
};

// How many tokens of its text are before the segment.
int first_position(const std::vector<RowSegment>& segments, int index);

struct TrainingAttention {
  float scale = 1;    // multiplies q @ k.T
  int window = 0;     // tokens that a query sees, itself included; 0: all
  float softcap = 0;  // scores become softcap * tanh(score / softcap); 0: no
  // [H]: one more score per head, of a key without a value.
  std::optional<mx::array> sinks = std::nullopt;
  // Of one packed row, in order, apart. Nothing is promised of what comes
  // out for tokens of none, but that it is finite.
  // Empty: each row is one text.
  std::vector<RowSegment> segments = {};
};

// softmax(scale * q @ k.T) @ v of whole texts, each query seeing the tokens of
// its text up to itself: q [B, H, L, D], k and v [B, K, L, D] with H a multiple
// of K -> [B, H, L, D] in q's dtype. Differentiable once in q, k, v and the
// sinks; what is kept for that is the output and one number for each query
// (log-sum-exp), and what both passes need beside it is linear in L: Dao et
// al., "FlashAttention". The same bits each time, but on CUDA only with
// Selection::deterministic.
//
// On the CPU our own kernel takes float32 and heads of a multiple of 16. On
// CUDA MLX's fused attention takes rows of one text, kernels of our own the
// rest of half precision. All else is MLX operations on blocks of queries; with
// Selection::fallback, texts whose scores are few enough to be kept take those
// of plain attention. Errors: internal, for shapes that do not fit;
// invalid_request for segments that overlap, are out of order, or whose parent
// is no earlier one.
mx::array training_attention(
    const mx::array& queries,
    const mx::array& keys,
    const mx::array& values,
    const TrainingAttention& options,
    const Selection& selection = {});

}  // namespace mlxx::kernels
