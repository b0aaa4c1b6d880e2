#pragma once

#include <climits>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "mlxx/cache/cache.h"

namespace mlxx::engine {

struct PrefixNode;

// The state after some tokens. Never changed once it is in a trie.
struct PrefixEntry {
  std::vector<int32_t> tokens;
  // The caches can be cut back to every length from here to all tokens.
  int shortest = 0;
  cache::CacheList caches;

  uint64_t used = 0;  // the trie's clock when its end was last used
  // On disk: all that will ever be there; the blocks that are, and the hash of
  // their tokens.
  bool is_stored = false;
  int stored_blocks = 0;
  std::string hash;
  PrefixNode* node = nullptr;  // the trie's

  int size() const {
    return static_cast<int>(tokens.size());
  }
};

// One block of kBlockTokens tokens of the entries beneath it.
struct PrefixNode {
  PrefixNode* parent = nullptr;
  std::vector<int32_t> tokens;  // of the block; none for the root
  int depth = 0;                // tokens from the start to the block's end
  uint64_t used = 0;
  int shortest = INT_MAX;  // of all entries beneath and here
  std::vector<std::unique_ptr<PrefixNode>> children;
  // Those that end less than a block behind this one.
  std::vector<std::unique_ptr<PrefixEntry>> entries;
};

// Entries by their tokens, block by block.
class PrefixTrie {
 public:
  PrefixTrie();
  ~PrefixTrie();

  struct Match {
    PrefixEntry* entry = nullptr;
    int length = 0;
  };
  // The entry that can be cut back to the longest prefix of `tokens`, and that
  // prefix. No entry: none shares a token.
  Match find(std::span<const int32_t> tokens) const;
  // As above, whether it can be cut back or not.
  Match nearest(std::span<const int32_t> tokens) const;
  // Those whose tokens are a prefix of `tokens`, shortest first.
  std::vector<PrefixEntry*> on_path(std::span<const int32_t> tokens) const;

  // Its tokens, `shortest` and `used` count; blocks on the way that are new
  // were used when it was.
  PrefixEntry* insert(std::unique_ptr<PrefixEntry> entry);
  std::unique_ptr<PrefixEntry> remove(PrefixEntry* entry);
  // The first `length` tokens of the entry are in use at `now`.
  void touch(PrefixEntry* entry, int length, uint64_t now);
  // The longest start of the entry, in whole blocks, that was used after its
  // end was; 0 if there is none.
  static const PrefixNode* used_since(const PrefixEntry& entry);

  std::vector<PrefixEntry*> entries() const;

 private:
  Match find(std::span<const int32_t> tokens, bool any_state) const;
  std::unique_ptr<PrefixNode> root_;
};

}  // namespace mlxx::engine
