#include "mlxx/kernels/decode_step/sequence_kv.h"

#include <algorithm>
#include <cstring>

namespace mlxx::kernels {
namespace {

constexpr size_t kAlignment = 64;

}  // namespace

KvBlock::KvBlock(const KvShape& shape) : shape_(shape) {
  if (shape.place == KvPlace::cuda) {
    // Attention reads whole tiles, also what is not yet written.
    array_ = mx::zeros({static_cast<int>(shape.block_bytes())}, mx::uint8);
    mx::async_eval(*array_);
    return;
  }
  buffer_.emplace(mx::allocator::malloc(shape.block_bytes() + kAlignment));
  mx::allocator::Buffer buffer = buffer_->buffer();
  auto address = reinterpret_cast<uintptr_t>(buffer.raw_ptr());
  data_ = static_cast<std::byte*>(buffer.raw_ptr()) +
      (kAlignment - address % kAlignment) % kAlignment;
  // Whole tiles of keys are multiplied, also those not yet written.
  std::memset(data_, 0, shape.block_bytes());
}

void KvBlock::copy_from(const KvBlock& other) {
  std::memcpy(data_, other.data_, shape_.block_bytes());
}

mx::array KvBlock::bytes() const {
  if (array_) {
    // An operation, since a plain copy would share the memory.
    mx::array copy = mx::bitwise_or(*array_, mx::array(0, mx::uint8));
    mx::eval(copy);
    return copy;
  }
  mx::array copy =
      mx::zeros({static_cast<int>(shape_.block_bytes())}, mx::uint8);
  mx::eval(copy);
  std::memcpy(copy.data<std::byte>(), data_, shape_.block_bytes());
  return copy;
}

void KvBlock::set_bytes(const mx::array& bytes) {
  if (array_) {
    array_ = mx::bitwise_or(mx::reshape(bytes, {-1}), mx::array(0, mx::uint8));
    mx::eval(*array_);
    return;
  }
  mx::array row = mx::contiguous(bytes);
  mx::eval(row);
  std::memcpy(data_, row.data<std::byte>(), shape_.block_bytes());
}

SequenceKv::~SequenceKv() {
  while (!blocks_.empty()) {
    drop_last();
  }
}

void SequenceKv::drop_last() {
  --blocks_.back()->owners_;
  blocks_.pop_back();
}

SequenceKv::Step SequenceKv::extend(int tokens) {
  Step step{length_, {}, {}};
  size_t needed = (length_ + tokens + kBlockLength - 1) / kBlockLength;
  if (length_ % kBlockLength != 0 && blocks_.back()->owners_ > 1) {
    auto own = std::make_shared<KvBlock>(shape_);
    own->owners_ = 1;
    step.copies.emplace_back(blocks_.back(), own);
    --blocks_.back()->owners_;
    blocks_.back() = std::move(own);
  }
  while (blocks_.size() < needed) {
    auto block = std::make_shared<KvBlock>(shape_);
    block->owners_ = 1;
    blocks_.push_back(std::move(block));
  }
  step.blocks = blocks_;
  length_ += tokens;
  return step;
}

void SequenceKv::truncate(int length) {
  if (length >= length_) {
    return;
  }
  length_ = length;
  size_t needed = (length + kBlockLength - 1) / kBlockLength;
  while (blocks_.size() > needed) {
    drop_last();
  }
}

std::unique_ptr<SequenceKv> SequenceKv::fork() const {
  auto other = std::make_unique<SequenceKv>(shape_);
  for (const auto& block : blocks_) {
    ++block->owners_;
  }
  other->blocks_ = blocks_;
  other->length_ = length_;
  return other;
}

void SequenceKv::share_front(const SequenceKv& other, size_t count) {
  count = std::min({count, blocks_.size(), other.blocks_.size()});
  for (size_t i = 0; i < count; ++i) {
    if (blocks_[i] != other.blocks_[i]) {
      --blocks_[i]->owners_;
      ++other.blocks_[i]->owners_;
      blocks_[i] = other.blocks_[i];
    }
  }
}

mx::array SequenceKv::block_bytes(size_t block) const {
  return blocks_.at(block)->bytes();
}

void SequenceKv::append_block(const mx::array& bytes) {
  extend(kBlockLength);
  blocks_.back()->set_bytes(bytes);
}

void SequenceKv::fill(int length, const mx::array& blocks) {
  extend(length);
  int size = static_cast<int>(shape_.block_bytes());
  for (int i = 0; i < static_cast<int>(blocks_.size()); ++i) {
    blocks_[i]->set_bytes(mx::slice(blocks, {i, 0}, {i + 1, size}));
  }
}

}  // namespace mlxx::kernels
