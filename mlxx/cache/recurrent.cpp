#include "mlxx/cache/recurrent.h"

namespace mlxx::cache {

RecurrentCache::RecurrentCache(int slots, std::vector<int> left_padding)
    : slots_(slots), left_padding_(std::move(left_padding)) {
  for (int padding : left_padding_) {
    if (padding < 0) {
      fail(ErrorKind::internal, "cache", "a row has {} tokens less", -padding);
    }
  }
}

void RecurrentCache::check(int index) const {
  if (index < 0 || index >= slots()) {
    fail(ErrorKind::internal, "cache", "slot {} of {}", index, slots());
  }
}

const std::optional<mx::array>& RecurrentCache::slot(int index) const {
  check(index);
  return slots_[index];
}

void RecurrentCache::set(int index, mx::array value) {
  check(index);
  if (!left_padding_.empty() &&
      value.shape(0) != static_cast<int>(left_padding_.size())) {
    fail(
        ErrorKind::internal,
        "cache",
        "{} rows for paddings of {}",
        value.shape(0),
        left_padding_.size());
  }
  slots_[index] = std::move(value);
}

std::optional<mx::array> RecurrentCache::mask(int L) const {
  if (left_padding_.empty()) {
    return std::nullopt;
  }
  int rows = static_cast<int>(left_padding_.size());
  mx::array first(left_padding_.data(), {rows, 1}, mx::int32);
  return mx::greater_equal(mx::arange(offset_, offset_ + L), first);
}

size_t RecurrentCache::nbytes() const {
  size_t bytes = 0;
  for (const auto& slot : slots_) {
    bytes += slot ? slot->nbytes() : 0;
  }
  return bytes;
}

std::vector<mx::array> RecurrentCache::state() const {
  std::vector<mx::array> arrays;
  for (const auto& slot : slots_) {
    if (slot) {
      arrays.push_back(*slot);
    }
  }
  return arrays;
}

std::unique_ptr<RecurrentCache> RecurrentCache::fork() const {
  return std::make_unique<RecurrentCache>(*this);
}

// Numbers: the offset, then of each slot whether it is filled.
StoredState RecurrentCache::store() const {
  if (!left_padding_.empty()) {
    fail(ErrorKind::unsupported, "cache", "padded states cannot be stored");
  }
  StoredState state{"recurrent", {offset_}, RecurrentCache::state(), {}};
  for (const auto& slot : slots_) {
    state.numbers.push_back(slot ? 1 : 0);
  }
  return state;
}

void RecurrentCache::restore(const StoredState& state) {
  size_t filled = 0;
  expect_stored(state, "recurrent", 1 + slots_.size(), state.arrays.size());
  std::vector<std::optional<mx::array>> slots(slots_.size());
  for (size_t i = 0; i < slots.size(); ++i) {
    if (stored_number(state, 1 + i, 0, 1) == 1) {
      if (filled == state.arrays.size()) {
        fail(ErrorKind::bad_file, "stored cache", "slot {} has no array", i);
      }
      slots[i] = state.arrays[filled++];
    }
  }
  if (filled != state.arrays.size()) {
    fail(ErrorKind::bad_file, "stored cache", "an array without a slot");
  }
  offset_ = stored_number(state, 0, 0, INT32_MAX);
  slots_ = std::move(slots);
}

std::unique_ptr<LayerCache> RecurrentCache::empty_copy() const {
  return std::make_unique<RecurrentCache>(slots(), left_padding_);
}

}  // namespace mlxx::cache
