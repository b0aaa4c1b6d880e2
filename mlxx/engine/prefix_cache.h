#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "mlxx/cache/cache.h"
#include "mlxx/engine/source_stats.h"

namespace mlxx::engine {

struct PrefixCacheOptions {
  size_t max_bytes = size_t{2} << 30;  // 0: nothing is kept
  // Tokens; to find less is not worth a copy of the block it is in.
  int shortest_hit = 8;
  // Where states are kept across restarts too (--prompt-cache-dir); empty: in
  // memory only.
  std::filesystem::path folder = {};
  size_t max_disk_bytes = size_t{8} << 30;
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

  // Errors: internal if the folder cannot be made or read.
  explicit PrefixCache(const PrefixCacheOptions& options);
  // Writes to disk what is not there yet.
  ~PrefixCache();

  // From now on states of the space go to disk as well and are found there:
  // whole blocks of tokens, and states that cannot be cut back where they end
  // with a block. `identity`: of all that decides what is in the states (the
  // weights, an adapter, which kernels run); a file of another one is never
  // used. `make_cache`: caches without tokens, as rows have them. Nothing
  // happens without a folder.
  void keep_on_disk(
      const std::string& space,
      const std::string& identity,
      std::function<cache::CacheList()> make_cache);
  // The model goes: hands over what is not on disk yet, drops the space's
  // entries and what was given to keep_on_disk().
  void close(const std::string& space);

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
  // parts from prompts that are known (at the boundary of blocks before that,
  // for a space that is on disk too): what a third one will begin with.
  int tokens_to_checkpoint(
      const std::string& space,
      std::span<const int32_t> prompt,
      int done,
      int total,
      bool trimmable) const;

  // Drops entries until `bytes` less are held, or all, and down to the limit in
  // any case; returns the bytes, which are then in MLX's pool of free memory.
  size_t shrink(size_t bytes);
  // In memory, of one space and of all.
  void clear(const std::string& space);
  void clear();
  // Files, those of models that are not loaded too.
  void clear_disk();

  // To be called often: drops what is over the limit since rows that held it
  // too are gone, and hands states to the thread that writes them, for no more
  // than about `budget`.
  void tick(std::chrono::microseconds budget = std::chrono::milliseconds(1));
  // Waits until all that can be kept is on disk.
  void flush();

  PrefixCacheStats stats() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace mlxx::engine
