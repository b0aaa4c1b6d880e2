#pragma once

#include <cstdint>
#include <vector>

#include "mlxx/cache/cache.h"
#include "mlxx/models/model.h"

namespace mlxx::generate {

// The decoding state of one conversation, kept between calls of generate() so
// that a turn computes only what is new. Starts empty; clear() forgets all.
// Belongs to one model.
struct Sequence {
  cache::CacheList caches;        // empty until the first prompt
  std::vector<int32_t> tokens;    // what the caches hold, oldest first
  models::CacheOptions made_for;  // what the caches were made for

  void clear();
};

// Makes `sequence` hold a prefix of `prompt` that is as long as possible and
// at least one token shorter than it (the last token is always computed, for
// its logits). Caches that cannot be cut back, or that were made for another
// CacheOptions, are replaced. Returns the length of that prefix.
// `prompt` may not be empty.
int reuse_prefix(
    Sequence& sequence,
    const std::vector<int32_t>& prompt,
    const models::Model& model,
    const models::CacheOptions& options);

}  // namespace mlxx::generate
