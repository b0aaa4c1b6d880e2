#pragma once

#include "mlxx/cache/cache.h"

namespace mlxx::cache {

// Keys and values of every token in one array each, grown by 256 tokens at a
// time. Equal to mlx-lm's KVCache.
class DenseCache : public KVCache {
 public:
  static constexpr int kStep = 256;

  KVView append(const mx::array& keys, const mx::array& values) override;
  int offset() const override {
    return offset_;
  }
  int trim(int n) override;
  bool is_trimmable() const override {
    return true;
  }
  size_t nbytes() const override;
  std::vector<mx::array> state() const override;
  Mask make_mask(int L) const override;
  std::vector<int> key_positions(int L) const override;
  StoredState store() const override;
  void restore(const StoredState& state) override;
  std::unique_ptr<LayerCache> shared_copy(int tokens) const override;
  bool is_in_blocks() const override {
    return true;
  }
  std::vector<mx::array> block(int index) const override;
  void restore_blocks(std::span<const std::vector<mx::array>> blocks) override;
  std::unique_ptr<LayerCache> empty_copy() const override;
  std::optional<TokenSlot> token_slot() override;
  void take_token(mx::array keys, mx::array values) override;

 private:
  void make_room(int total, const mx::array& keys, const mx::array& values);

  std::optional<mx::array> keys_;    // [B, K, capacity, D]
  std::optional<mx::array> values_;  // [B, K, capacity, D]
  int offset_ = 0;
};

}  // namespace mlxx::cache
