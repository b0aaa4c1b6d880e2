#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "mlxx/core/mlx.h"
#include "mlxx/kernels/attention/block_attention.h"

namespace mlxx::kernels {

// What one token's keys and values are, the same in every layer.
struct KvShape {
  int layers;
  int kv_heads;
  int head_size;  // a multiple of kHeadSizeStep
  KvType type;

  size_t number_bytes() const {
    return type == KvType::float16 ? 2 : 4;
  }
  // Keys (or values) of one head in one block.
  size_t head_bytes() const {
    return size_t{kBlockLength} * head_size * number_bytes();
  }
  size_t block_bytes() const {
    return size_t{2} * layers * kv_heads * head_bytes();
  }
};

// Keys and values of 64 tokens in every layer. MLX's allocator counts it.
class KvBlock {
 public:
  explicit KvBlock(const KvShape& shape);
  KvBlock(const KvBlock&) = delete;
  KvBlock& operator=(const KvBlock&) = delete;

  std::byte* keys(int layer, int head) const {
    return at(layer, 0, head);
  }
  std::byte* values(int layer, int head) const {
    return at(layer, 1, head);
  }
  void copy_from(const KvBlock& other);

 private:
  friend class SequenceKv;
  std::byte* at(int layer, int part, int head) const {
    size_t index =
        (size_t(layer) * 2 + part) * size_t(shape_.kv_heads) + size_t(head);
    return data_ + index * shape_.head_bytes();
  }

  KvShape shape_;
  mx::allocator::Data buffer_;
  std::byte* data_;  // in buffer_, aligned to 64 bytes
  int owners_ = 0;   // sequences; a kernel in flight is none
};

using KvBlocks = std::vector<std::shared_ptr<KvBlock>>;

// The keys and values of one sequence in blocks, which forks share until one of
// them writes into a block. Lengths change when a step is planned, contents
// when it runs; steps of a sequence run in the order in which they were
// planned. Not thread-safe.
class SequenceKv {
 public:
  explicit SequenceKv(const KvShape& shape) : shape_(shape) {}
  ~SequenceKv();
  SequenceKv(const SequenceKv&) = delete;
  SequenceKv& operator=(const SequenceKv&) = delete;

  const KvShape& shape() const {
    return shape_;
  }
  // Tokens.
  int length() const {
    return length_;
  }

  // A step that writes tokens [from, from + tokens).
  struct Step {
    int from;
    KvBlocks blocks;
    // To be done first: blocks that were shared and are now written to.
    std::vector<std::pair<std::shared_ptr<KvBlock>, std::shared_ptr<KvBlock>>>
        copies;  // from, to
  };
  Step extend(int tokens);
  // Drops the newest tokens.
  void truncate(int length);
  // The same tokens in the same blocks.
  std::unique_ptr<SequenceKv> fork() const;
  // Its first `count` blocks become those of `other`. All are full, and of the
  // same tokens.
  void share_front(const SequenceKv& other, size_t count);
  const KvBlocks& held_blocks() const {
    return blocks_;
  }
  // Blocks of kBlockLength tokens each, the last one not always full.
  size_t blocks() const {
    return blocks_.size();
  }
  // All blocks, block_bytes() each. Only when no step is to run any more.
  void copy_to(std::byte* bytes) const;
  void copy_block_to(size_t block, std::byte* bytes) const;
  // One more block, block_bytes(), after whole ones.
  void append_block(const std::byte* bytes);
  // The other way, into a sequence without tokens: `length` tokens.
  void fill(int length, const std::byte* bytes);
  // Of all its blocks, shared ones included.
  size_t nbytes() const {
    return blocks_.size() * shape_.block_bytes();
  }

 private:
  void drop_last();

  KvShape shape_;
  KvBlocks blocks_;
  int length_ = 0;
};

}  // namespace mlxx::kernels
