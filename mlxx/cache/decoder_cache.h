#pragma once

#include <memory>
#include <span>
#include <vector>

#include "mlxx/cache/cache.h"
#include "mlxx/kernels/decode_step/sequence_kv.h"

namespace mlxx::cache {

// The state of all layers of a decoder that runs as one kernel, in blocks of 64
// tokens: one entry of a CacheList stands for every layer.
class DecoderCache : public KVCache {
 public:
  explicit DecoderCache(const kernels::KvShape& shape) : shape_(shape) {}

  // Rows of other caches, each of one sequence, for one step of all of them:
  // what the step does to this cache it does to those, which must outlive it.
  static std::unique_ptr<DecoderCache> joined(
      std::span<DecoderCache* const> rows);

  // The sequences of a batch of that many rows. The first call decides;
  // another number later is an internal error.
  std::vector<kernels::SequenceKv*> sequences(int rows);
  // What the newest steps give when they have run; empty before the first.
  std::vector<mx::array> newest() const;
  void set_newest(const mx::array& done);

  // The kernel writes keys and values by itself: an internal error.
  KVView append(const mx::array& keys, const mx::array& values) override;
  int offset() const override;
  int trim(int n) override;
  bool is_trimmable() const override {
    return true;
  }
  size_t nbytes() const override;
  std::vector<mx::array> state() const override;
  Mask make_mask(int L) const override;

  std::unique_ptr<LayerCache> shared_copy(int tokens) const override;
  bool is_in_blocks() const override {
    return rows_.empty() && sequences_.size() <= 1;
  }
  std::vector<mx::array> block(int index) const override;
  void restore_blocks(std::span<const std::vector<mx::array>> blocks) override;
  // Whole blocks of the first sequence.
  void share_front(const LayerCache& other, int tokens) override;
  std::vector<HeldMemory> memory() const override;
  // One part for each sequence, whose lengths may differ.
  StoredState store() const override;
  void restore(const StoredState& state) override;
  std::unique_ptr<LayerCache> empty_copy() const override;

  // A cache with the same tokens on the same blocks: no copy is made.
  std::unique_ptr<DecoderCache> fork() const;

 private:
  kernels::KvShape shape_;
  std::vector<DecoderCache*> rows_;  // of a joined one
  std::vector<std::unique_ptr<kernels::SequenceKv>> sequences_;
  std::optional<mx::array> newest_;
};

}  // namespace mlxx::cache
