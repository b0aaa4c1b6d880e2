#pragma once

#include "mlxx/cache/block_pool.h"

namespace mlxx::cache {

// One layer's state in blocks of a pool. Forks share blocks until one of them
// writes into a shared block, which it then copies.
class BlocksCache : public KVCache {
 public:
  explicit BlocksCache(std::shared_ptr<BlockPool> pool);
  ~BlocksCache() override;
  BlocksCache(const BlocksCache&) = delete;
  BlocksCache& operator=(const BlocksCache&) = delete;

  KVView append(const mx::array& keys, const mx::array& values) override;
  int offset() const override {
    return length_;
  }
  int trim(int n) override;
  bool is_trimmable() const override {
    return true;
  }
  // Of the blocks this cache refers to, shared ones included.
  size_t nbytes() const override;
  std::vector<mx::array> state() const override;
  Mask make_mask(int L) const override;
  std::unique_ptr<LayerCache> shared_copy(int tokens) const override;

  // A cache with the same tokens on the same blocks: no copy is made.
  std::unique_ptr<BlocksCache> fork() const;

 private:
  void append_row(
      std::vector<int>& blocks,
      const mx::array& keys,
      const mx::array& values);
  void release_all();

  std::shared_ptr<BlockPool> pool_;
  std::vector<std::vector<int>> table_;  // per row
  int length_ = 0;
};

}  // namespace mlxx::cache
