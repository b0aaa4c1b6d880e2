#pragma once

#include <optional>
#include <vector>

#include "mlxx/cache/cache.h"

namespace mlxx::cache {

// Blocks of kBlockTokens tokens of one layer, counted by reference, so that
// rows, forks and kept prefixes can share them. Not thread-safe.
class BlockPool {
 public:
  // A block with one reference. `keys` and `values` [1, K, any, D] give the
  // shape and dtype the first time.
  int allocate(const mx::array& keys, const mx::array& values);
  void retain(int block);
  // The last release makes the block free for reuse.
  void release(int block);
  int references(int block) const {
    return references_[block];
  }

  // Writes [1, K, n, D] at token `at` of the block; n + at <= kBlockTokens.
  void write(int block, int at, const mx::array& keys, const mx::array& values);
  // A block with one reference and the same content.
  int copy(int block);

  // [capacity, K, kBlockTokens, D]
  const mx::array& keys() const {
    return *keys_;
  }
  const mx::array& values() const {
    return *values_;
  }
  bool is_empty() const {
    return !keys_;
  }
  int capacity() const {
    return static_cast<int>(references_.size());
  }
  int used() const {
    return capacity() - static_cast<int>(free_.size());
  }

 private:
  void grow(const mx::array& keys, const mx::array& values);

  std::optional<mx::array> keys_;
  std::optional<mx::array> values_;
  std::vector<int> references_;  // per block, 0 if free
  std::vector<int> free_;        // a stack; the lowest index on top
};

}  // namespace mlxx::cache
