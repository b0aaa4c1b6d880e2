#pragma once

#include <memory>
#include <vector>

#include "mlxx/cache/cache.h"

namespace mlxx::cache {

// A batch whose rows begin with different numbers of padding tokens, so that
// all end together: row r's first token is at position -left_padding[r], and
// nobody sees the padding. Storage is that of another cache, whose offset
// counts the padding. Masks are arrays, as those of mlx-lm's BatchKVCache and
// BatchRotatingKVCache.
class PaddedCache : public KVCache {
 public:
  // internal if a padding is negative.
  PaddedCache(std::unique_ptr<KVCache> storage, std::vector<int> left_padding);

  const KVCache& storage() const {
    return *storage_;
  }

  KVView append(const mx::array& keys, const mx::array& values) override;
  int offset() const override {
    return storage_->offset();
  }
  // [B]: of each row.
  kernels::Position position() const override;
  int trim(int n) override {
    return storage_->trim(n);
  }
  bool is_trimmable() const override {
    return storage_->is_trimmable();
  }
  int droppable() const override {
    return storage_->droppable();
  }
  bool is_always_trimmable() const override {
    return storage_->is_always_trimmable();
  }
  size_t nbytes() const override {
    return storage_->nbytes();
  }
  std::vector<mx::array> state() const override {
    return storage_->state();
  }
  Mask make_mask(int L) const override;
  std::vector<int> key_positions(int L) const override {
    return storage_->key_positions(L);
  }
  std::unique_ptr<LayerCache> shared_copy(int tokens) const override;
  StoredState store() const override;
  void restore(const StoredState& state) override;
  std::unique_ptr<LayerCache> empty_copy() const override;
  int window() const override {
    return storage_->window();
  }

 private:
  std::unique_ptr<KVCache> storage_;
  std::vector<int> left_padding_;
};

}  // namespace mlxx::cache
