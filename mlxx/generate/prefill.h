#pragma once

#include <functional>
#include <vector>

#include "mlxx/generate/sequence.h"
#include "mlxx/models/model.h"

namespace mlxx::generate {

struct PrefillOptions {
  int step_size = 2048;  // tokens per chunk, at most
  std::function<void(int done, int total)> on_progress = {};  // may be empty
  std::function<bool()> is_cancelled = {};                    // may be empty
};

// Tokens of the next chunk after `done` of `total` prompt tokens: step_size,
// but less once chunk times context passes 2048 x 32768. A chunk's attention
// grows with both, in time (Metal kills commands that run too long) and,
// without a fused kernel, in memory.
int chunk_length(int step_size, int done, int total);

// Appends all of `prompt` but its last token to the caches, chunk by chunk as
// mlx-lm does: each chunk is evaluated and MLX's buffer pool emptied before
// the next. No logits are computed. `sequence` holds a proper prefix of
// `prompt` and its tokens follow the caches, also when this throws between
// chunks. Returns false if cancelled before the end.
bool prefill(
    const models::Model& model,
    const std::vector<int32_t>& prompt,
    Sequence& sequence,
    const PrefillOptions& options);

}  // namespace mlxx::generate
