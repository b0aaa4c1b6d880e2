#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "mlxx/core/mlx.h"
#include "mlxx/kernels/attention/block_attention.h"

namespace mlxx::kernels {

// Where blocks lie. cuda: in arrays of MLX on the device, as bfloat16.
enum class KvPlace { host, cuda };

// What one token's keys and values are, the same in every layer.
struct KvShape {
  int layers;
  int kv_heads;
  int head_size;  // a multiple of kHeadSizeStep on the host
  KvType type;    // on the host
  KvPlace place = KvPlace::host;

  size_t number_bytes() const {
    return place == KvPlace::cuda || type == KvType::float16 ? 2 : 4;
  }
  // Tells forms apart in files.
  int form() const {
    return place == KvPlace::cuda ? 16 : static_cast<int>(type);
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
  // On the host; a kernel copies blocks on a device.
  void copy_from(const KvBlock& other);
  // On a device: uint8 [block_bytes()], there already.
  const mx::array& array() const {
    return *array_;
  }

 private:
  friend class SequenceKv;
  std::byte* at(int layer, int part, int head) const {
    size_t index =
        (size_t(layer) * 2 + part) * size_t(shape_.kv_heads) + size_t(head);
    return data_ + index * shape_.head_bytes();
  }

  // Apart from this block; evaluated.
  mx::array bytes() const;
  void set_bytes(const mx::array& bytes);

  KvShape shape_;
  std::optional<mx::allocator::Data> buffer_;  // on the host
  std::byte* data_ = nullptr;       // in buffer_, aligned to 64 bytes
  std::optional<mx::array> array_;  // on a device
  int owners_ = 0;                  // sequences; a kernel in flight is none
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
  // A copy of one block, uint8 [block_bytes()]; evaluated. Only when no step
  // is to run any more.
  mx::array block_bytes(size_t block) const;
  // One more block, uint8 [block_bytes()], after whole ones.
  void append_block(const mx::array& bytes);
  // The other way, into a sequence without tokens: `length` tokens of blocks
  // uint8 [blocks, block_bytes()].
  void fill(int length, const mx::array& blocks);
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
