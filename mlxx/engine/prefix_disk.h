#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>

#include "mlxx/engine/prefix_store.h"
#include "mlxx/engine/prefix_trie.h"

namespace mlxx::engine {

// Entries of a prefix cache on disk: whole blocks, each under a name that is
// made of all tokens up to its end, and where layers have states that do not
// come apart, those of entries that end with a block or can be cut back to one.
class PrefixDisk {
 public:
  using Clock = std::chrono::steady_clock;

  explicit PrefixDisk(const PrefixStoreOptions& options) : store_(options) {}

  // What can be restored from now on into caches that `make_cache` makes.
  // `identity`: of whatever decides what is in them, beside their layout.
  void open(
      const std::string& space,
      const std::string& identity,
      std::function<cache::CacheList()> make_cache);
  void close(const std::string& space);
  bool is_open(const std::string& space) const {
    return spaces_.contains(space);
  }

  // Hands pieces of the entry to the writer until `until`; true when all of it
  // was, also if nothing of it can be.
  bool
  save(const std::string& space, PrefixEntry& entry, Clock::time_point until);

  struct Found {
    cache::CacheList caches;
    int tokens = 0;
  };
  // The longest start of `tokens` that is there whole, if it is longer than
  // `more_than`.
  std::optional<Found> load(
      const std::string& space,
      std::span<const int32_t> tokens,
      int more_than);

  PrefixStore& store() {
    return store_;
  }

 private:
  struct Space {
    std::string key;
    std::function<cache::CacheList()> make_cache;
    bool has_blocks = false;
    bool has_states = false;
  };
  // Where a prompt's blocks are, as far as they are there.
  struct Place {
    std::string hash;
    std::string block;
    std::string state;  // empty if there is none
  };
  std::vector<Place> places(const Space& space, std::span<const int32_t> tokens)
      const;
  std::optional<LoadedPiece> read(
      const std::string& name,
      const std::string& hash);
  std::optional<cache::CacheList> restore(
      const Space& space,
      std::span<const LoadedPiece> blocks,
      const Place& end,
      int tokens);

  std::map<std::string, Space> spaces_;
  PrefixStore store_;
};

}  // namespace mlxx::engine
