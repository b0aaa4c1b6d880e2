#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "mlxx/cache/cache.h"
#include "mlxx/engine/prefix_store.h"

// Caches of one sequence taken apart into what belongs to one block of tokens,
// which prompts that share it share on disk too, and the states of layers that
// do not come apart, of which each is of one length only.
namespace mlxx::engine {

// Whether there are layers of the one kind and of the other.
bool has_blocks(const cache::CacheList& caches);
bool has_states(const cache::CacheList& caches);

// What the caches of a model and its options look like: caches of equal layouts
// can restore each other's pieces.
std::string layout_of(const cache::CacheList& empty);

// Whether block() and state() need not wait for the device.
bool is_computed(const cache::CacheList& caches);

StoredPiece block_piece(const cache::CacheList& caches, int block);
StoredPiece state_piece(const cache::CacheList& caches);

// The state after all of the blocks, into caches without tokens. `state`: if
// there are layers that need one. bad_file if a piece does not fit; the caches
// are then of no use.
void restore_pieces(
    cache::CacheList& empty,
    std::span<const LoadedPiece> blocks,
    const LoadedPiece* state,
    int tokens);

}  // namespace mlxx::engine
