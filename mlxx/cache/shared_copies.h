#pragma once

#include "mlxx/cache/cache.h"

namespace mlxx::cache {

// The caches of one sequence, all layers of it, in copies that share memory
// (LayerCache::shared_copy).

// With the first `tokens` tokens: the state after them and no other one.
// internal if a layer cannot go back to there; unsupported for kinds that
// cannot be copied.
CacheList shared_copies(const CacheList& caches, int tokens);
CacheList shared_copies(const CacheList& caches);

// How many of the newest tokens a copy of a layer with the first `tokens` does
// without. internal if the layer cannot go back to there.
int tokens_to_drop(const LayerCache& layer, int tokens);

// Tokens that all layers have seen.
int tokens_in(const CacheList& caches);
// How many of the newest every layer can drop.
int droppable(const CacheList& caches);
// Whether that stays all of them, however many tokens come.
bool is_always_trimmable(const CacheList& caches);

// As LayerCache::share_front, of all layers.
void share_front(CacheList& caches, const CacheList& other, int tokens);
// Of all layers.
std::vector<HeldMemory> memory(const CacheList& caches);
// The array, or a copy of it if it is a small part of a buffer that it would
// keep alive.
mx::array in_own_memory(const mx::array& array);
// Hands to the device what is not there yet and does not wait, so that no graph
// hangs on the caches.
void start_evaluation(const CacheList& caches);

}  // namespace mlxx::cache
