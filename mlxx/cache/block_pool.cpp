#include "mlxx/cache/block_pool.h"

#include <algorithm>

#include "mlxx/base/error.h"
#include "mlxx/cache/token_axis.h"

namespace mlxx::cache {
namespace {

constexpr int kFirstCapacity = 4;

mx::array
write_block(mx::array pool, const mx::array& update, int block, int at) {
  mx::Shape stop = {
      block + 1,
      pool.shape(1),
      at + update.shape(2),
      pool.shape(3)};
  return mx::slice_update(std::move(pool), update, {block, 0, at, 0}, stop);
}

mx::array read_block(const mx::array& pool, int block) {
  return mx::slice(
      pool,
      {block, 0, 0, 0},
      {block + 1, pool.shape(1), pool.shape(2), pool.shape(3)});
}

mx::array more_blocks(
    const std::optional<mx::array>& held,
    const mx::array& like,
    int blocks) {
  mx::array room = mx::zeros(
      {blocks, like.shape(1), kBlockTokens, like.shape(3)},
      like.dtype());
  return held ? mx::concatenate({*held, room}, 0) : room;
}

}  // namespace

void BlockPool::grow(const mx::array& keys, const mx::array& values) {
  int more = std::max(kFirstCapacity, capacity());
  keys_ = more_blocks(keys_, keys, more);
  values_ = more_blocks(values_, values, more);
  int first = capacity();
  references_.resize(first + more, 0);
  for (int block = first + more - 1; block >= first; --block) {
    free_.push_back(block);
  }
}

int BlockPool::allocate(const mx::array& keys, const mx::array& values) {
  check_append(keys, values, nullptr, nullptr);
  if (free_.empty()) {
    grow(keys, values);
  }
  int block = free_.back();
  free_.pop_back();
  references_[block] = 1;
  return block;
}

void BlockPool::retain(int block) {
  if (references_.at(block) < 1) {
    fail(ErrorKind::internal, "block pool", "block {} is not in use", block);
  }
  ++references_[block];
}

void BlockPool::release(int block) {
  if (references_.at(block) < 1) {
    fail(ErrorKind::internal, "block pool", "block {} is not in use", block);
  }
  if (--references_[block] == 0) {
    free_.push_back(block);
  }
}

void BlockPool::write(
    int block,
    int at,
    const mx::array& keys,
    const mx::array& values) {
  keys_ = write_block(std::move(*keys_), keys, block, at);
  values_ = write_block(std::move(*values_), values, block, at);
}

int BlockPool::copy(int block) {
  int fresh = allocate(*keys_, *values_);
  write(fresh, 0, read_block(*keys_, block), read_block(*values_, block));
  return fresh;
}

}  // namespace mlxx::cache
