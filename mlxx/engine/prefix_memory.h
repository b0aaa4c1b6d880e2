#pragma once

#include <unordered_map>

#include "mlxx/cache/cache.h"

namespace mlxx::engine {

// Counts memory that entries of a prefix cache hold, each piece once, and none
// that somebody else holds as well.
class PrefixMemory {
 public:
  // An entry's, when it is kept, and when it is dropped.
  void add(const std::vector<cache::HeldMemory>& held);
  void remove(const std::vector<cache::HeldMemory>& held);

  // Of what nobody but the entries holds. Rows come and go: it changes without
  // a call. An array that a row got and has not written to yet counts as the
  // entries' alone.
  size_t bytes() const;
  // What of it would go with an entry that holds this.
  size_t bytes_of(const std::vector<cache::HeldMemory>& held) const;

 private:
  struct Piece {
    cache::HeldMemory memory;
    long entries = 0;
  };
  static bool is_only_here(const Piece& piece) {
    // The one here is one of them.
    return piece.memory.handle.use_count() <= piece.entries + 1;
  }
  std::unordered_map<const void*, Piece> pieces_;
};

}  // namespace mlxx::engine
