#include "mlxx/cache/padded.h"

#include <algorithm>

namespace mlxx::cache {
namespace {

mx::array ints(const std::vector<int>& values, mx::Shape shape) {
  return mx::array(values.data(), std::move(shape), mx::int32);
}

int count(const std::vector<int>& values) {
  return static_cast<int>(values.size());
}

}  // namespace

PaddedCache::PaddedCache(
    std::unique_ptr<KVCache> storage,
    std::vector<int> left_padding)
    : storage_(std::move(storage)), left_padding_(std::move(left_padding)) {
  for (int padding : left_padding_) {
    if (padding < 0) {
      fail(ErrorKind::internal, "cache", "a row has {} tokens less", -padding);
    }
  }
}

KVView PaddedCache::append(const mx::array& keys, const mx::array& values) {
  if (keys.shape(0) != count(left_padding_)) {
    fail(
        ErrorKind::internal,
        "cache",
        "{} rows for paddings of {}",
        keys.shape(0),
        left_padding_.size());
  }
  return storage_->append(keys, values);
}

kernels::Position PaddedCache::position() const {
  std::vector<int> positions;
  for (int padding : left_padding_) {
    positions.push_back(storage_->offset() - padding);
  }
  return kernels::Position(ints(positions, {count(positions)}));
}

KVCache::Mask PaddedCache::make_mask(int L) const {
  std::vector<int> positions = storage_->key_positions(L);
  mx::array keys = ints(positions, {1, count(positions)});
  mx::array queries = mx::expand_dims(mx::arange(offset(), offset() + L), 1);
  mx::array seen = mx::greater_equal(queries, keys);
  if (int width = storage_->window(); width > 0) {
    seen = mx::logical_and(
        seen,
        mx::less(queries, mx::add(keys, mx::array(width, mx::int32))));
  }
  mx::array first = ints(left_padding_, {count(left_padding_), 1, 1, 1});
  return {"", mx::logical_and(seen, mx::less_equal(first, keys))};
}

std::unique_ptr<LayerCache> PaddedCache::shared_copy(int tokens) const {
  auto copy = storage_->shared_copy(tokens);
  std::unique_ptr<KVCache> storage(&cache_as<KVCache>(*copy));
  copy.release();
  return std::make_unique<PaddedCache>(std::move(storage), left_padding_);
}

StoredState PaddedCache::store() const {
  return {
      "padded",
      {left_padding_.begin(), left_padding_.end()},
      {},
      {storage_->store()}};
}

void PaddedCache::restore(const StoredState& state) {
  expect_stored(state, "padded", left_padding_.size(), 0, 1);
  for (size_t row = 0; row < left_padding_.size(); ++row) {
    stored_number(state, row, left_padding_[row], left_padding_[row]);
  }
  storage_->restore(state.parts[0]);
}

std::unique_ptr<LayerCache> PaddedCache::empty_copy() const {
  auto copy = storage_->empty_copy();
  std::unique_ptr<KVCache> storage(&cache_as<KVCache>(*copy));
  copy.release();
  return std::make_unique<PaddedCache>(std::move(storage), left_padding_);
}

}  // namespace mlxx::cache
