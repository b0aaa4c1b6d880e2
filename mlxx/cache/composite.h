#pragma once

#include "mlxx/cache/cache.h"

namespace mlxx::cache {

// Several states of one layer, such as attention beside a scan. All of them
// see the same tokens. Equal to mlx-lm's CacheList.
class CompositeCache : public LayerCache {
 public:
  // internal without a part.
  explicit CompositeCache(CacheList parts);

  // internal if there is no such part.
  LayerCache& part(int index) const;
  int size() const {
    return static_cast<int>(parts_.size());
  }
  int parts() const {
    return static_cast<int>(parts_.size());
  }

  int offset() const override {
    return parts_.front()->offset();
  }
  // As many tokens as every part can drop.
  int trim(int n) override;
  bool is_trimmable() const override;
  int droppable() const override;
  bool is_always_trimmable() const override;
  size_t nbytes() const override;
  std::vector<mx::array> state() const override;
  void share_front(const LayerCache& other, int tokens) override;
  std::vector<HeldMemory> memory() const override;
  std::unique_ptr<LayerCache> shared_copy(int tokens) const override;
  StoredState store() const override;
  void restore(const StoredState& state) override;
  std::unique_ptr<LayerCache> empty_copy() const override;

 private:
  CacheList parts_;
};

}  // namespace mlxx::cache
