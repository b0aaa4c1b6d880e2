#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "mlxx/base/error.h"
#include "mlxx/cache/stored_state.h"
#include "mlxx/core/mlx.h"
#include "mlxx/kernels/attention/attention.h"
#include "mlxx/kernels/rope/rope.h"

namespace mlxx::cache {

using kernels::BlocksView;
using kernels::DenseView;
using kernels::kBlockTokens;
using kernels::KVView;

// Where one more token goes in a cache that holds tokens in one array each for
// keys and values.
struct TokenSlot {
  mx::array keys;    // [B, K, capacity, D], with room for the token
  mx::array values;  // [B, K, capacity, D]
  int write_at;      // the token's index
  int visible;       // how many leading ones it sees once it is written
  // Layers of which this is equal always agree in write_at and visible as long
  // as they are given the same tokens: 0, or how many a rotating cache holds
  // and how many of them it keeps for ever.
  std::pair<int, int> kind;
};

// Memory that several caches may hold together; `handle` tells which it is and
// how many hold it.
struct HeldMemory {
  std::shared_ptr<const void> handle;
  size_t bytes;
};

// Decoding state of one layer, or of a few that share it. Not thread-safe; the
// owner is one sequence (or one batch).
class LayerCache {
 public:
  virtual ~LayerCache() = default;

  // Tokens seen so far, which is the rope position of the next one.
  virtual int offset() const = 0;
  // Drops the newest n tokens; returns how many could be dropped.
  virtual int trim(int n) = 0;
  virtual bool is_trimmable() const = 0;
  // How many of the newest tokens trim() can drop now.
  virtual int droppable() const {
    return is_trimmable() ? offset() : 0;
  }
  // Whether that stays all of them, however many tokens come.
  virtual bool is_always_trimmable() const {
    return is_trimmable();
  }
  // Bytes held, spare room included.
  virtual size_t nbytes() const = 0;
  // Arrays to evaluate so that no graph hangs on this cache.
  virtual std::vector<mx::array> state() const = 0;

  // A cache of the same kind with the first `tokens` of the tokens: memory is
  // shared until one of the two writes to it, and none sees what the other is
  // given later. internal if the others cannot be dropped; unsupported for a
  // kind that cannot be copied.
  virtual std::unique_ptr<LayerCache> shared_copy(int /* tokens */) const {
    fail(ErrorKind::unsupported, "cache", "this kind cannot be copied");
  }
  // Gives up its own memory of the first `tokens` tokens, as far as that is
  // possible, for that of a cache of the same kind and model which holds the
  // same ones.
  virtual void share_front(const LayerCache& /* other */, int /* tokens */) {}
  // What it holds, once its state is being evaluated.
  virtual std::vector<HeldMemory> memory() const;

  // Whether the state is nothing but that of each token, so that it comes apart
  // into blocks of kBlockTokens tokens.
  virtual bool is_in_blocks() const {
    return false;
  }
  // Of those, what belongs to one whole block; evaluated, and apart from this
  // object. internal unless the cache has the block.
  virtual std::vector<mx::array> block(int /* index */) const {
    fail(ErrorKind::internal, "cache", "this kind is not in blocks");
  }
  // The other way, into a cache without tokens of the same kind and options.
  // bad_file if these are not such a one's blocks.
  virtual void restore_blocks(
      std::span<const std::vector<mx::array>> /* blocks */) {
    fail(ErrorKind::internal, "cache", "this kind is not in blocks");
  }

  // The state apart from this object (stored_caches.h writes it to a file);
  // unsupported for a kind that stays in memory.
  virtual StoredState store() const {
    fail(ErrorKind::unsupported, "cache", "this kind cannot be stored");
  }
  // The other way, into a cache without tokens of the same kind and options.
  // bad_file if the state is not such a one's.
  virtual void restore(const StoredState& /* state */) {
    fail(ErrorKind::unsupported, "cache", "this kind cannot be stored");
  }
  // Of the same kind and options, without tokens.
  virtual std::unique_ptr<LayerCache> empty_copy() const {
    fail(ErrorKind::unsupported, "cache", "this kind cannot be stored");
  }

  // The two halves of taking one token, between which somebody else writes it.
  // token_slot() makes room and may be called again; it returns nothing if the
  // cache is empty or stores tokens in another way.
  virtual std::optional<TokenSlot> token_slot() {
    return std::nullopt;
  }
  // Takes the slot's arrays back, with the token written. Only after
  // token_slot(), without a change in between.
  virtual void take_token(mx::array /* keys */, mx::array /* values */) {
    fail(ErrorKind::internal, "cache", "takes tokens by append() only");
  }
};

// Keys and values of one attention layer.
class KVCache : public LayerCache {
 public:
  // Takes [B, K, L, D] for L new tokens and returns everything attention may
  // look at, those included.
  virtual KVView append(const mx::array& keys, const mx::array& values) = 0;

  // offset(), or an array of it while a graph for every position is recorded.
  virtual kernels::Position position() const {
    return offset();
  }
  // The mask for L new tokens: "" (none), "causal", or an array. Its width is
  // the length that append() will return, not the position.
  using Mask = kernels::AttentionMask;
  virtual Mask make_mask(int L) const = 0;

  // Which token each of the keys is that append() of L tokens will return, in
  // their order there. internal for a cache that returns no arrays.
  virtual std::vector<int> key_positions(int /* L */) const {
    fail(ErrorKind::internal, "cache", "has no keys in a known order");
  }
  // How many tokens a query sees at most, itself included; 0: all.
  virtual int window() const {
    return 0;
  }
};

// One entry per layer.
using CacheList = std::vector<std::unique_ptr<LayerCache>>;

// The cache as the kind that a layer works with; internal if it is another.
template <typename Kind>
Kind& cache_as(LayerCache& cache) {
  auto* kind = dynamic_cast<Kind*>(&cache);
  if (!kind) {
    fail(ErrorKind::internal, "cache", "a layer was given another layer's");
  }
  return *kind;
}

}  // namespace mlxx::cache
