#include "mlxx/cache/recurrent.h"

#include "mlxx/cache/shared_copies.h"
#include "mlxx/core/materialize.h"

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

mx::array RecurrentCache::Slot::own() const {
  if (row < 0) {
    return value;
  }
  mx::Shape from(value.ndim(), 0);
  mx::Shape to = value.shape();
  from[0] = row;
  to[0] = row + 1;
  return mx::slice(value, from, to);
}

size_t RecurrentCache::Slot::nbytes() const {
  return row < 0 ? value.nbytes() : value.nbytes() / value.shape(0);
}

std::optional<RecurrentCache::Slot> RecurrentCache::join_slot(
    std::span<RecurrentCache* const> rows,
    size_t index) {
  const std::optional<Slot>* filled = nullptr;
  bool together = true;  // all rows of one array, in order
  for (size_t row = 0; row < rows.size(); ++row) {
    const auto& slot = rows[row]->slots_[index];
    filled = slot ? &slot : filled;
    together = together && slot && slot->row == static_cast<int>(row) &&
        slot->value.id() == rows[0]->slots_[index]->value.id() &&
        slot->value.shape(0) == static_cast<int>(rows.size());
  }
  if (!filled) {
    return std::nullopt;
  }
  if (together) {
    return Slot{(*filled)->value};
  }
  std::vector<mx::array> parts;
  for (const RecurrentCache* row : rows) {
    const auto& slot = row->slots_[index];
    parts.push_back(slot ? slot->own() : mx::zeros_like((*filled)->own()));
  }
  return Slot{mx::concatenate(parts, 0)};
}

std::unique_ptr<RecurrentCache> RecurrentCache::joined(
    std::span<RecurrentCache* const> rows) {
  if (rows.empty()) {
    fail(ErrorKind::internal, "cache", "a batch of no rows");
  }
  for (const RecurrentCache* row : rows) {
    if (row->slots() != rows[0]->slots() || !row->left_padding_.empty()) {
      fail(ErrorKind::internal, "cache", "states of different kinds");
    }
  }
  auto all = std::make_unique<RecurrentCache>(rows[0]->slots());
  for (size_t i = 0; i < all->slots_.size(); ++i) {
    all->slots_[i] = join_slot(rows, i);
  }
  return all;
}

void RecurrentCache::give_rows(std::span<RecurrentCache* const> rows) const {
  for (size_t i = 0; i < slots_.size(); ++i) {
    const auto& slot = slots_[i];
    if (!slot) {
      continue;
    }
    if (slot->value.shape(0) != static_cast<int>(rows.size())) {
      fail(
          ErrorKind::internal,
          "cache",
          "{} rows for {} caches",
          slot->value.shape(0),
          rows.size());
    }
    for (size_t row = 0; row < rows.size(); ++row) {
      rows[row]->slots_[i] = Slot{slot->value, static_cast<int>(row)};
    }
  }
  for (RecurrentCache* row : rows) {
    row->offset_ += offset_;
  }
}

std::optional<mx::array> RecurrentCache::slot(int index) const {
  check(index);
  const auto& slot = slots_[index];
  return slot ? std::optional(slot->own()) : std::nullopt;
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
  slots_[index] = Slot{std::move(value)};
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
      arrays.push_back(slot->value);
    }
  }
  return arrays;
}

// What outlives a batch must not keep the arrays of the whole batch.
std::unique_ptr<RecurrentCache> RecurrentCache::fork() const {
  auto other = std::make_unique<RecurrentCache>(*this);
  for (auto& slot : other->slots_) {
    if (slot && slot->row >= 0) {
      slot = Slot{materialize_copy(slot->own())};
    }
  }
  return other;
}

std::unique_ptr<LayerCache> RecurrentCache::shared_copy(int tokens) const {
  if (tokens != offset_) {
    fail(
        ErrorKind::internal,
        "cache",
        "a state after {} tokens is none after {}",
        offset_,
        tokens);
  }
  auto copy = fork();
  for (auto& slot : copy->slots_) {
    if (slot) {
      slot = Slot{in_own_memory(slot->value)};
    }
  }
  return copy;
}

// Numbers: the offset, then of each slot whether it is filled.
StoredState RecurrentCache::store() const {
  if (!left_padding_.empty()) {
    fail(ErrorKind::unsupported, "cache", "padded states cannot be stored");
  }
  StoredState state{"recurrent", {offset_}, {}, {}};
  for (const auto& slot : slots_) {
    state.numbers.push_back(slot ? 1 : 0);
    if (slot) {
      state.arrays.push_back(
          slot->row < 0 ? slot->value : materialize_copy(slot->own()));
    }
  }
  return state;
}

void RecurrentCache::restore(const StoredState& state) {
  size_t filled = 0;
  expect_stored(state, "recurrent", 1 + slots_.size(), state.arrays.size());
  std::vector<std::optional<Slot>> slots(slots_.size());
  for (size_t i = 0; i < slots.size(); ++i) {
    if (stored_number(state, 1 + i, 0, 1) == 1) {
      if (filled == state.arrays.size()) {
        fail(ErrorKind::bad_file, "stored cache", "slot {} has no array", i);
      }
      slots[i] = Slot{state.arrays[filled++]};
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
