#include "mlxx/cache/chunked.h"

#include <algorithm>
#include <numeric>

#include "mlxx/cache/shared_copies.h"
#include "mlxx/cache/token_axis.h"

namespace mlxx::cache {

// For as many tokens as are given, after those that are kept.
void ChunkedCache::make_room(const mx::array& keys, const mx::array& values) {
  int more = keys.shape(2);
  if (keys_ && offset_ - held_ + more <= keys_->shape(2)) {
    return;
  }
  int room = (more + kStep - 1) / kStep * kStep;
  auto grow = [&](const std::optional<mx::array>& held, const mx::array& like) {
    mx::array empty = zero_tokens(like, room);
    if (!held || start_ == offset_) {
      return empty;
    }
    return mx::concatenate(
        {slice_tokens(*held, start_ - held_, offset_ - held_), empty},
        2);
  };
  keys_ = grow(keys_, keys);
  values_ = grow(values_, values);
  held_ = start_;
}

KVView ChunkedCache::append(const mx::array& keys, const mx::array& values) {
  check_append(
      keys,
      values,
      keys_ ? &*keys_ : nullptr,
      values_ ? &*values_ : nullptr);
  start_ = next_start();
  make_room(keys, values);
  int at = offset_ - held_;
  offset_ += keys.shape(2);
  keys_ = write_tokens(std::move(*keys_), keys, at);
  values_ = write_tokens(std::move(*values_), values, at);
  return DenseView{
      slice_tokens(*keys_, start_ - held_, offset_ - held_),
      slice_tokens(*values_, start_ - held_, offset_ - held_)};
}

int ChunkedCache::droppable() const {
  // The first chunk of which every token is still there.
  int whole = (start_ + length_ - 1) / length_ * length_;
  return offset_ - std::min(whole, offset_);
}

int ChunkedCache::trim(int n) {
  n = std::clamp(n, 0, droppable());
  offset_ -= n;
  return n;
}

std::unique_ptr<LayerCache> ChunkedCache::shared_copy(int tokens) const {
  int dropped = tokens_to_drop(*this, tokens);
  auto copy = std::make_unique<ChunkedCache>(*this);
  copy->trim(dropped);
  return copy;
}

size_t ChunkedCache::nbytes() const {
  return keys_ ? keys_->nbytes() + values_->nbytes() : 0;
}

std::vector<mx::array> ChunkedCache::state() const {
  if (!keys_) {
    return {};
  }
  return {*keys_, *values_};
}

KVCache::Mask ChunkedCache::make_mask(int L) const {
  mx::array keys = mx::arange(next_start(), offset_ + L);
  mx::array queries = mx::expand_dims(mx::arange(offset_, offset_ + L), 1);
  mx::array length(length_, mx::int32);
  mx::array same_chunk = mx::equal(
      mx::floor_divide(keys, length),
      mx::floor_divide(queries, length));
  return {"", mx::logical_and(same_chunk, mx::less_equal(keys, queries))};
}

std::vector<int> ChunkedCache::key_positions(int L) const {
  std::vector<int> positions(static_cast<size_t>(offset_ + L - next_start()));
  std::iota(positions.begin(), positions.end(), next_start());
  return positions;
}

StoredState ChunkedCache::store() const {
  StoredState state{"chunked", {offset_, start_, length_}, {}, {}};
  if (offset_ > start_) {
    state.arrays = {
        slice_tokens(*keys_, start_ - held_, offset_ - held_),
        slice_tokens(*values_, start_ - held_, offset_ - held_)};
  }
  return state;
}

void ChunkedCache::restore(const StoredState& state) {
  expect_stored(state, "chunked", 3, state.arrays.empty() ? 0 : 2);
  int offset = stored_number(state, 0, 0, INT32_MAX);
  int start = stored_number(state, 1, 0, offset);
  stored_number(state, 2, length_, length_);
  int held = 0;
  keys_.reset();
  values_.reset();
  if (!state.arrays.empty()) {
    expect_stored_tokens(state, state.arrays[0], state.arrays[1]);
    held = state.arrays[0].shape(2);
    keys_ = state.arrays[0];
    values_ = state.arrays[1];
  }
  stored_number(state, 1, offset - held, offset - held);
  offset_ = offset;
  start_ = start;
  held_ = start;
}

std::unique_ptr<LayerCache> ChunkedCache::empty_copy() const {
  return std::make_unique<ChunkedCache>(length_);
}

}  // namespace mlxx::cache
