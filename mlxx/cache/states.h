#pragma once

#include "mlxx/cache/cache.h"

namespace mlxx::cache {

// The arrays of all layers (LayerCache::state).
std::vector<mx::array> states(const CacheList& caches);

// Computes them, and with them what else was to be computed for the caches.
void evaluate(const CacheList& caches);

}  // namespace mlxx::cache
