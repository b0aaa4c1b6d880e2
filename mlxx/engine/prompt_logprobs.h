#pragma once

#include <span>
#include <vector>

#include "mlxx/engine/request.h"
#include "mlxx/models/model.h"

namespace mlxx::engine {

// What the model gave each token of a prompt and the `top` likeliest at its
// place, likeliest first. The first token has no probability: NaN and no
// others. Waits; memory for the logits of a few dozen tokens at a time.
std::vector<AnswerToken> prompt_logprobs(
    const models::Model& model,
    cache::CacheList caches,  // new ones
    std::span<const int32_t> prompt,
    int top,
    const kernels::Selection& selection);

}  // namespace mlxx::engine
