#pragma once

#include <span>

#include "mlxx/cache/cache.h"

namespace mlxx::cache {

// Caches of one row of a batch and of batches of several rows, layer by layer.
// Arrays are copied when they are next evaluated; the sources stay as they are.

// Row `row` of a batch by itself, its padding dropped. internal if there is no
// such row; unsupported for kinds that stay in memory, and for the padded rows
// of a rotating cache.
CacheList extract_row(const CacheList& batch, int row);

// A batch of all rows, in order; what made them must be the same model and
// options. Rows of different lengths are possible for caches of all tokens
// (they become padded) and of whole decoders; else they are unsupported.
CacheList merge_rows(std::span<const CacheList* const> rows);

}  // namespace mlxx::cache
