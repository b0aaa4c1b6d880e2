#include "mlxx/cache/blocks.h"

#include <algorithm>

#include "mlxx/base/error.h"
#include "mlxx/cache/token_axis.h"

namespace mlxx::cache {
namespace {

mx::array row_of(const mx::array& a, int row) {
  return mx::slice(
      a,
      {row, 0, 0, 0},
      {row + 1, a.shape(1), a.shape(2), a.shape(3)});
}

}  // namespace

BlocksCache::BlocksCache(std::shared_ptr<BlockPool> pool)
    : pool_(std::move(pool)) {}

BlocksCache::~BlocksCache() {
  release_all();
}

void BlocksCache::release_all() {
  for (const auto& blocks : table_) {
    for (int block : blocks) {
      pool_->release(block);
    }
  }
  table_.clear();
}

KVView BlocksCache::append(const mx::array& keys, const mx::array& values) {
  check_append(keys, values, nullptr, nullptr);
  if (!pool_->is_empty()) {
    bool fits = keys.shape(1) == pool_->keys().shape(1) &&
        keys.shape(3) == pool_->keys().shape(3) &&
        values.shape(3) == pool_->values().shape(3) &&
        keys.dtype() == pool_->keys().dtype();
    if (!fits) {
      fail(
          ErrorKind::internal,
          "cache",
          "keys ({}) do not fit the block pool",
          fmt::join(keys.shape().begin(), keys.shape().end(), ", "));
    }
  }
  size_t rows = keys.shape(0);
  if (table_.empty()) {
    table_.resize(rows);
  }
  if (table_.size() != rows) {
    fail(
        ErrorKind::internal,
        "cache",
        "{} rows appended to a cache of {}",
        rows,
        table_.size());
  }
  for (size_t row = 0; row < rows; ++row) {
    append_row(
        table_[row],
        row_of(keys, static_cast<int>(row)),
        row_of(values, static_cast<int>(row)));
  }
  length_ += keys.shape(2);
  return BlocksView{
      pool_->keys(),
      pool_->values(),
      table_,
      std::vector<int>(rows, length_)};
}

void BlocksCache::append_row(
    std::vector<int>& blocks,
    const mx::array& keys,
    const mx::array& values) {
  int total = keys.shape(2);
  for (int done = 0; done < total;) {
    int position = length_ + done;
    int at = position % kBlockTokens;
    int n = std::min(kBlockTokens - at, total - done);
    size_t index = position / kBlockTokens;
    if (index == blocks.size()) {
      blocks.push_back(pool_->allocate(keys, values));
    } else if (pool_->references(blocks[index]) > 1) {
      int own = pool_->copy(blocks[index]);
      pool_->release(blocks[index]);
      blocks[index] = own;
    }
    pool_->write(
        blocks[index],
        at,
        slice_tokens(keys, done, done + n),
        slice_tokens(values, done, done + n));
    done += n;
  }
}

int BlocksCache::trim(int n) {
  n = std::clamp(n, 0, length_);
  length_ -= n;
  size_t needed = (length_ + kBlockTokens - 1) / kBlockTokens;
  for (auto& blocks : table_) {
    while (blocks.size() > needed) {
      pool_->release(blocks.back());
      blocks.pop_back();
    }
  }
  return n;
}

size_t BlocksCache::nbytes() const {
  size_t blocks = 0;
  for (const auto& row : table_) {
    blocks += row.size();
  }
  if (blocks == 0) {
    return 0;
  }
  size_t capacity = pool_->capacity();
  return blocks *
      (pool_->keys().nbytes() / capacity + pool_->values().nbytes() / capacity);
}

std::vector<mx::array> BlocksCache::state() const {
  if (pool_->is_empty()) {
    return {};
  }
  return {pool_->keys(), pool_->values()};
}

KVCache::Mask BlocksCache::make_mask(int L) const {
  return {L > 1 ? "causal" : "", std::nullopt};
}

std::unique_ptr<LayerCache> BlocksCache::shared_copy(int tokens) const {
  if (tokens < 0 || tokens > length_) {
    fail(ErrorKind::internal, "cache", "{} tokens of {}", tokens, length_);
  }
  auto copy = fork();
  copy->trim(length_ - tokens);
  return copy;
}

std::unique_ptr<BlocksCache> BlocksCache::fork() const {
  auto other = std::make_unique<BlocksCache>(pool_);
  for (const auto& blocks : table_) {
    for (int block : blocks) {
      pool_->retain(block);
    }
  }
  other->table_ = table_;
  other->length_ = length_;
  return other;
}

}  // namespace mlxx::cache
