#pragma once

#include "mlxx/cache/cache.h"

namespace mlxx::cache {

// At most max_size tokens in decoding: the first `keep` and the newest ones.
// A chunk of L tokens sees up to max_size - 1 earlier ones and leaves
// max_size + L - 1 behind until the next append. Equal to mlx-lm's
// RotatingKVCache.
class RotatingCache : public KVCache {
 public:
  static constexpr int kStep = 256;

  // invalid_request unless 0 <= keep < max_size.
  explicit RotatingCache(int max_size, int keep = 0);

  KVView append(const mx::array& keys, const mx::array& values) override;
  int offset() const override {
    return offset_;
  }
  // Only while nothing has been overwritten: else 0.
  int trim(int n) override;
  bool is_trimmable() const override {
    return offset_ < max_size_;
  }
  bool is_always_trimmable() const override {
    return false;
  }
  size_t nbytes() const override;
  std::vector<mx::array> state() const override;
  Mask make_mask(int L) const override;
  std::vector<int> key_positions(int L) const override;
  int window() const override {
    return max_size_;
  }
  StoredState store() const override;
  void restore(const StoredState& state) override;
  std::unique_ptr<LayerCache> shared_copy(int tokens) const override;
  std::unique_ptr<LayerCache> empty_copy() const override;
  std::optional<TokenSlot> token_slot() override;
  void take_token(mx::array keys, mx::array values) override;

 private:
  void make_room(const mx::array& keys, const mx::array& values);
  KVView append_one(const mx::array& keys, const mx::array& values);
  KVView append_chunk(const mx::array& keys, const mx::array& values);
  KVView view() const;
  mx::array in_time_order(const mx::array& a) const;
  mx::array without_oldest(const mx::array& a, int drop, const mx::array* more)
      const;

  int max_size_;
  int keep_;
  std::optional<mx::array> keys_;    // [B, K, held, D]
  std::optional<mx::array> values_;  // [B, K, held, D]
  int offset_ = 0;
  int next_ = 0;  // where the next single token goes
};

}  // namespace mlxx::cache
