#include "mlxx/cache/rotating.h"

#include <algorithm>

#include "mlxx/base/error.h"
#include "mlxx/cache/shared_copies.h"
#include "mlxx/cache/token_axis.h"

namespace mlxx::cache {

RotatingCache::RotatingCache(int max_size, int keep)
    : max_size_(max_size), keep_(keep) {
  if (keep < 0 || keep >= max_size) {
    fail(
        ErrorKind::invalid_request,
        "max_kv_size",
        "must be more than the {} tokens always kept, found {}",
        std::max(keep, 0),
        max_size);
  }
}

KVView RotatingCache::append(const mx::array& keys, const mx::array& values) {
  check_append(
      keys,
      values,
      keys_ ? &*keys_ : nullptr,
      values_ ? &*values_ : nullptr);
  return keys.shape(2) == 1 ? append_one(keys, values)
                            : append_chunk(keys, values);
}

// Oldest first; the kept tokens are the oldest.
mx::array RotatingCache::in_time_order(const mx::array& a) const {
  int held = a.shape(2);
  if (next_ == held) {
    return a;
  }
  if (next_ < offset_) {
    return mx::concatenate(
        {slice_tokens(a, 0, keep_),
         slice_tokens(a, next_, held),
         slice_tokens(a, keep_, next_)},
        2);
  }
  return slice_tokens(a, 0, next_);
}

mx::array RotatingCache::without_oldest(
    const mx::array& a,
    int drop,
    const mx::array* more) const {
  std::vector<mx::array> parts;
  if (drop > 0) {
    parts.push_back(slice_tokens(a, 0, keep_));
    parts.push_back(slice_tokens(a, drop + keep_, a.shape(2)));
  } else {
    parts.push_back(a);
  }
  if (more) {
    parts.push_back(*more);
  }
  return mx::concatenate(parts, 2);
}

KVView RotatingCache::append_chunk(
    const mx::array& keys,
    const mx::array& values) {
  if (!keys_) {
    keys_ = keys;
    values_ = values;
  } else {
    mx::array old_keys = in_time_order(*keys_);
    mx::array old_values = in_time_order(*values_);
    // Every token of the chunk still gets max_size - 1 earlier ones.
    int drop = old_keys.shape(2) - max_size_ + 1;
    keys_ = without_oldest(old_keys, drop, &keys);
    values_ = without_oldest(old_values, drop, &values);
  }
  offset_ += keys.shape(2);
  next_ = keys_->shape(2);
  return DenseView{*keys_, *values_};
}

// For one token like that given, at next_.
void RotatingCache::make_room(const mx::array& keys, const mx::array& values) {
  if (!keys_ || (offset_ >= keys_->shape(2) && keys_->shape(2) < max_size_)) {
    int room = std::min(kStep, max_size_ - offset_);
    mx::array more_keys = zero_tokens(keys, room);
    mx::array more_values = zero_tokens(values, room);
    keys_ = keys_ ? mx::concatenate({*keys_, more_keys}, 2) : more_keys;
    values_ =
        values_ ? mx::concatenate({*values_, more_values}, 2) : more_values;
    next_ = offset_;
  }
  int drop = keys_->shape(2) - max_size_;
  if (drop > 0) {
    keys_ = without_oldest(*keys_, drop, nullptr);
    values_ = without_oldest(*values_, drop, nullptr);
    next_ = max_size_;
  }
  if (next_ == max_size_) {
    next_ = keep_;
  }
}

KVView RotatingCache::append_one(
    const mx::array& keys,
    const mx::array& values) {
  make_room(keys, values);
  keys_ = write_tokens(std::move(*keys_), keys, next_);
  values_ = write_tokens(std::move(*values_), values, next_);
  ++offset_;
  ++next_;
  return view();
}

KVView RotatingCache::view() const {
  if (offset_ < keys_->shape(2)) {
    return DenseView{
        slice_tokens(*keys_, 0, offset_),
        slice_tokens(*values_, 0, offset_)};
  }
  return DenseView{*keys_, *values_};
}

std::optional<TokenSlot> RotatingCache::token_slot() {
  if (!keys_) {
    return std::nullopt;
  }
  make_room(*keys_, *values_);
  return TokenSlot{
      *keys_,
      *values_,
      next_,
      std::min(offset_ + 1, keys_->shape(2)),
      {max_size_, keep_}};
}

void RotatingCache::take_token(mx::array keys, mx::array values) {
  keys_ = std::move(keys);
  values_ = std::move(values);
  ++offset_;
  ++next_;
}

int RotatingCache::trim(int n) {
  if (!is_trimmable()) {
    return 0;
  }
  n = std::clamp(n, 0, offset_);
  offset_ -= n;
  next_ -= n;
  return n;
}

std::unique_ptr<LayerCache> RotatingCache::shared_copy(int tokens) const {
  int dropped = tokens_to_drop(*this, tokens);
  auto copy = std::make_unique<RotatingCache>(*this);
  copy->trim(dropped);
  if (keys_) {
    copy->keys_ = in_own_memory(*keys_);
    copy->values_ = in_own_memory(*values_);
  }
  return copy;
}

size_t RotatingCache::nbytes() const {
  return keys_ ? keys_->nbytes() + values_->nbytes() : 0;
}

std::vector<mx::array> RotatingCache::state() const {
  if (!keys_) {
    return {};
  }
  return {*keys_, *values_};
}

KVCache::Mask RotatingCache::make_mask(int L) const {
  if (L == 1) {
    return {"", std::nullopt};
  }
  // The live length, not the position: what append() will return is this long.
  int before = std::min(max_size_ - 1, offset_);
  if (before + L <= max_size_) {
    return {"causal", std::nullopt};
  }
  mx::array columns = mx::arange(before + L);
  mx::array rows = mx::arange(before, before + L);
  rows = mx::expand_dims(rows, 1);
  columns = mx::expand_dims(columns, 0);
  mx::array window(max_size_, rows.dtype());
  mx::array seen = mx::logical_and(
      mx::greater_equal(rows, columns),
      mx::less(rows, mx::add(columns, window)));
  return {"", seen};
}

std::vector<int> RotatingCache::key_positions(int L) const {
  int held = keys_ ? std::min(offset_, keys_->shape(2)) : 0;
  std::vector<int> positions;
  auto add_range = [&](int from, int to) {
    for (int p = from; p < to; ++p) {
      positions.push_back(p);
    }
  };
  if (L == 1 && held >= max_size_) {
    // Newest in its slot, older ones before it around the ring.
    int ring = max_size_ - keep_;
    bool at_end = next_ >= max_size_ || keys_->shape(2) > max_size_;
    int slot = at_end ? keep_ : next_;
    add_range(0, keep_);
    for (int s = keep_; s < max_size_; ++s) {
      positions.push_back(offset_ - ((slot - s) % ring + ring) % ring);
    }
    return positions;
  }
  // In the order of time; a chunk leaves max_size - 1 of the earlier ones.
  int stay = L == 1 ? held : std::min(held, max_size_ - 1);
  int kept = std::min(keep_, stay);
  add_range(0, kept);
  add_range(offset_ - (stay - kept), offset_ + L);
  return positions;
}

StoredState RotatingCache::store() const {
  StoredState state{"rotating", {offset_, next_, max_size_, keep_}, {}, {}};
  if (keys_) {
    state.arrays = {*keys_, *values_};
  }
  return state;
}

void RotatingCache::restore(const StoredState& state) {
  expect_stored(state, "rotating", 4, state.arrays.empty() ? 0 : 2);
  stored_number(state, 2, max_size_, max_size_);
  stored_number(state, 3, keep_, keep_);
  keys_.reset();
  values_.reset();
  if (state.arrays.empty()) {
    offset_ = stored_number(state, 0, 0, 0);
    next_ = stored_number(state, 1, 0, 0);
    return;
  }
  expect_stored_tokens(state, state.arrays[0], state.arrays[1]);
  int held = state.arrays[0].shape(2);
  int offset = stored_number(state, 0, 1, INT32_MAX);
  if (held < std::min(offset, max_size_ - 1)) {
    fail(
        ErrorKind::bad_file,
        "stored cache",
        "{} tokens are held of {}",
        held,
        offset);
  }
  offset_ = offset;
  next_ = stored_number(state, 1, 0, held);
  keys_ = state.arrays[0];
  values_ = state.arrays[1];
}

std::unique_ptr<LayerCache> RotatingCache::empty_copy() const {
  return std::make_unique<RotatingCache>(max_size_, keep_);
}

}  // namespace mlxx::cache
