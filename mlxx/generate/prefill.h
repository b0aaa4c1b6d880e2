#pragma once

#include <functional>
#include <vector>

#include "mlxx/generate/sequence.h"
#include "mlxx/models/model.h"

namespace mlxx::generate {

struct PrefillOptions {
  int step_size = 2048;  // tokens per chunk
  std::function<void(int done, int total)> on_progress = {};  // may be empty
  std::function<bool()> is_cancelled = {};                    // may be empty
};

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
