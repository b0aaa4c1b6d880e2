#pragma once

#include <algorithm>

#include "mlxx/cache/cache.h"

namespace mlxx::cache {

// Keys and values for attention within chunks of a fixed length: token i sees
// the earlier ones of chunk i / length. Before tokens come in, older ones than
// the newest `length` are dropped. Equal to mlx-lm's ChunkedKVCache in what it
// returns.
class ChunkedCache : public KVCache {
 public:
  static constexpr int kStep = 256;

  explicit ChunkedCache(int length) : length_(length) {}

  // Of a chunk.
  int length() const {
    return length_;
  }

  KVView append(const mx::array& keys, const mx::array& values) override;
  int offset() const override {
    return offset_;
  }
  // As many as leave the whole of the newest chunk.
  int trim(int n) override;
  bool is_trimmable() const override {
    return true;
  }
  int droppable() const override;
  bool is_always_trimmable() const override {
    return false;
  }
  size_t nbytes() const override;
  std::vector<mx::array> state() const override;
  // Always an array: [L, tokens that append() will return].
  Mask make_mask(int L) const override;
  std::vector<int> key_positions(int L) const override;
  std::unique_ptr<LayerCache> shared_copy(int tokens) const override;
  StoredState store() const override;
  void restore(const StoredState& state) override;
  std::unique_ptr<LayerCache> empty_copy() const override;

 private:
  // Of the oldest token that the next append() will keep.
  int next_start() const {
    return std::max(start_, offset_ - length_);
  }
  void make_room(const mx::array& keys, const mx::array& values);

  int length_;
  std::optional<mx::array> keys_;    // [B, K, capacity, D]
  std::optional<mx::array> values_;  // [B, K, capacity, D]
  int held_ = 0;   // position of the first token in the arrays
  int start_ = 0;  // position of the oldest token that is kept
  int offset_ = 0;
};

}  // namespace mlxx::cache
