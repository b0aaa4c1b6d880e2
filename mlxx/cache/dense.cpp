#include "mlxx/cache/dense.h"

#include <algorithm>
#include <numeric>

#include "mlxx/cache/shared_copies.h"
#include "mlxx/cache/token_axis.h"
#include "mlxx/core/materialize.h"

namespace mlxx::cache {
namespace {

// Room for `more` tokens after the first `length` of `held`.
mx::array grow(
    const std::optional<mx::array>& held,
    const mx::array& like,
    int length,
    int more) {
  int steps = (DenseCache::kStep + more - 1) / DenseCache::kStep;
  mx::array room = zero_tokens(like, steps * DenseCache::kStep);
  if (!held) {
    return room;
  }
  bool whole = length % DenseCache::kStep == 0 && length == held->shape(2);
  return mx::concatenate(
      {whole ? *held : slice_tokens(*held, 0, length), room},
      2);
}

}  // namespace

// For `total` tokens like those given.
void DenseCache::make_room(
    int total,
    const mx::array& keys,
    const mx::array& values) {
  if (!keys_ || total > keys_->shape(2)) {
    keys_ = grow(keys_, keys, offset_, total - offset_);
    values_ = grow(values_, values, offset_, total - offset_);
  }
}

KVView DenseCache::append(const mx::array& keys, const mx::array& values) {
  check_append(
      keys,
      values,
      keys_ ? &*keys_ : nullptr,
      values_ ? &*values_ : nullptr);
  int length = offset_;
  make_room(length + keys.shape(2), keys, values);
  offset_ += keys.shape(2);
  keys_ = write_tokens(std::move(*keys_), keys, length);
  values_ = write_tokens(std::move(*values_), values, length);
  if (offset_ == keys_->shape(2)) {
    return DenseView{*keys_, *values_};
  }
  return DenseView{
      slice_tokens(*keys_, 0, offset_),
      slice_tokens(*values_, 0, offset_)};
}

int DenseCache::trim(int n) {
  n = std::clamp(n, 0, offset_);
  offset_ -= n;
  return n;
}

size_t DenseCache::nbytes() const {
  return keys_ ? keys_->nbytes() + values_->nbytes() : 0;
}

std::vector<mx::array> DenseCache::state() const {
  if (!keys_) {
    return {};
  }
  return {*keys_, *values_};
}

KVCache::Mask DenseCache::make_mask(int L) const {
  return {L > 1 ? "causal" : "", std::nullopt};
}

std::unique_ptr<LayerCache> DenseCache::shared_copy(int tokens) const {
  int dropped = tokens_to_drop(*this, tokens);
  auto copy = std::make_unique<DenseCache>(*this);
  copy->offset_ -= dropped;
  if (tokens == 0) {
    copy->keys_.reset();
    copy->values_.reset();
  } else if (tokens + kStep <= keys_->shape(2)) {
    // The first write would copy all of it, and until then all would be held.
    copy->keys_ = grow(keys_, *keys_, tokens, 1);
    copy->values_ = grow(values_, *values_, tokens, 1);
  }
  return copy;
}

std::vector<mx::array> DenseCache::block(int index) const {
  if (index < 0 || (index + 1) * kBlockTokens > offset()) {
    fail(ErrorKind::internal, "cache", "block {} of {}", index, offset());
  }
  int from = index * kBlockTokens;
  std::vector<mx::array> arrays;
  for (const auto* held : {&*keys_, &*values_}) {
    arrays.push_back(
        materialize_copy(slice_tokens(*held, from, from + kBlockTokens)));
  }
  mx::eval(arrays);
  return arrays;
}

void DenseCache::restore_blocks(
    std::span<const std::vector<mx::array>> blocks) {
  std::vector<mx::array> keys;
  std::vector<mx::array> values;
  for (const auto& block : blocks) {
    StoredState state{"dense", {kBlockTokens}, block, {}};
    expect_stored(state, "dense", 1, 2);
    expect_stored_tokens(state, block[0], block[1]);
    const auto& first = blocks.front();
    for (int i = 0; i < 2; ++i) {
      if (block[i].shape(2) != kBlockTokens ||
          block[i].shape() != first[i].shape() ||
          block[i].dtype() != first[i].dtype()) {
        fail(ErrorKind::bad_file, "stored cache", "blocks of other layers");
      }
    }
    keys.push_back(block[0]);
    values.push_back(block[1]);
  }
  keys_.reset();
  values_.reset();
  offset_ = static_cast<int>(blocks.size()) * kBlockTokens;
  if (!blocks.empty()) {
    keys_ = mx::concatenate(keys, 2);
    values_ = mx::concatenate(values, 2);
  }
}

std::optional<TokenSlot> DenseCache::token_slot() {
  if (!keys_) {
    return std::nullopt;
  }
  make_room(offset_ + 1, *keys_, *values_);
  return TokenSlot{*keys_, *values_, offset_, offset_ + 1, {0, 0}};
}

void DenseCache::take_token(mx::array keys, mx::array values) {
  keys_ = std::move(keys);
  values_ = std::move(values);
  ++offset_;
}

std::vector<int> DenseCache::key_positions(int L) const {
  std::vector<int> positions(static_cast<size_t>(offset() + L));
  std::iota(positions.begin(), positions.end(), 0);
  return positions;
}

StoredState DenseCache::store() const {
  StoredState state{"dense", {offset_}, {}, {}};
  if (offset_ > 0) {
    state.arrays = {
        slice_tokens(*keys_, 0, offset_),
        slice_tokens(*values_, 0, offset_)};
  }
  return state;
}

void DenseCache::restore(const StoredState& state) {
  expect_stored(state, "dense", 1, state.arrays.empty() ? 0 : 2);
  int offset = stored_number(state, 0, 0, INT32_MAX);
  if (state.arrays.empty() != (offset == 0)) {
    fail(ErrorKind::bad_file, "stored cache", "{} tokens without keys", offset);
  }
  keys_.reset();
  values_.reset();
  offset_ = offset;
  if (offset > 0) {
    expect_stored_tokens(state, state.arrays[0], state.arrays[1]);
    stored_number(state, 0, state.arrays[0].shape(2), state.arrays[0].shape(2));
    keys_ = state.arrays[0];
    values_ = state.arrays[1];
  }
}

std::unique_ptr<LayerCache> DenseCache::empty_copy() const {
  return std::make_unique<DenseCache>();
}

}  // namespace mlxx::cache
