#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "mlxx/cache/cache.h"

namespace mlxx::engine {

struct PrefixCacheOptions {
  size_t max_bytes = size_t{2} << 30;  // 0: nothing is kept
  // Tokens; to find less is not worth a copy of the block it is in.
  int shortest_hit = 8;
};

struct PrefixCacheStats {
  uint64_t lookups = 0;
  uint64_t hits = 0;
  uint64_t tokens_found = 0;
  uint64_t evictions = 0;
  size_t bytes = 0;  // of what only the cache holds
  size_t entries = 0;
};

// States of prompts and answers, found again by their tokens: a trie over
// blocks of kBlockTokens tokens. Nothing that is found is changed by its user
// or by eviction: caches share blocks or arrays and copy what they write to.
// Least recently used goes first, block by block where states can be cut back:
// of a conversation that nobody goes on with, the start that others share
// stays. Engine's thread only.
class PrefixCache {
 public:
  // States of one sequence that cannot be cut back, one longer than the other.
  static constexpr int kMostOnPath = 16;

  explicit PrefixCache(const PrefixCacheOptions& options);
  ~PrefixCache();

  struct Hit {
    cache::CacheList caches;  // hold exactly `tokens` tokens
    int tokens = 0;
  };
  // The longest known prefix of `prompt` that is shorter than it; nothing if
  // there is none. `space` keeps models and adapters apart.
  std::optional<Hit> find(
      const std::string& space,
      std::span<const int32_t> prompt);

  // Remembers the state after `tokens`, which may be the first ones of those in
  // the caches if these can be cut back. Nothing happens for kinds of caches
  // that cannot be copied. Caches that can be cut back serve
  // every shorter prefix, others (recurrent, windows) this length only: give
  // those at the boundaries where they may be wanted.
  void insert(
      const std::string& space,
      std::span<const int32_t> tokens,
      const cache::CacheList& caches);

  // How many tokens from `done` on to compute before the state is worth an
  // insert() on the way, because it cannot be cut back later: to the next
  // multiple of 512 (or more, so that there are no more than kMostOnPath of
  // them), to the last boundary of blocks, or to the end. `trimmable`:
  // cache::is_always_trimmable().
  static int tokens_to_checkpoint(int done, int total, bool trimmable);
  // As above for the first `total` tokens of a prompt, with a stop where it
  // parts from prompts that are known: what a third one will begin with.
  int tokens_to_checkpoint(
      const std::string& space,
      std::span<const int32_t> prompt,
      int done,
      int total,
      bool trimmable) const;

  // Drops entries until `bytes` less are held, or all; returns the bytes, which
  // are then in MLX's pool of free memory.
  size_t shrink(size_t bytes);
  void clear(const std::string& space);
  void clear();

  // To be called often: drops what is over the limit since rows that held it
  // too are gone.
  void tick();

  PrefixCacheStats stats() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace mlxx::engine
