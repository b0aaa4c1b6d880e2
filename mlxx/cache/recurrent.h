#pragma once

#include <span>

#include "mlxx/cache/cache.h"

namespace mlxx::cache {

// State of a layer that folds all tokens into a few arrays of fixed size: the
// last inputs of a convolution, the state of a scan. What was folded in cannot
// be taken out again, so nothing can be trimmed. Equal to mlx-lm's ArraysCache.
class RecurrentCache : public LayerCache {
 public:
  // `left_padding`: tokens that each row of a batch begins with and that do
  // not count; empty: every token counts. internal if one is negative.
  explicit RecurrentCache(int slots, std::vector<int> left_padding = {});

  // The states of several caches of one row each, for one step of all of them;
  // give_rows() gives each its part of the result. A row without a state has
  // zeros, which is what layers begin with.
  static std::unique_ptr<RecurrentCache> joined(
      std::span<RecurrentCache* const> rows);
  void give_rows(std::span<RecurrentCache* const> rows) const;

  // [B, ...]; nothing before the first token.
  std::optional<mx::array> slot(int index) const;
  void set(int index, mx::array value);
  // L more tokens are in the slots.
  void advance(int L) {
    offset_ += L;
  }
  // Which of the next L tokens count, [B, L] bool; nothing: all.
  std::optional<mx::array> mask(int L) const;

  int slots() const {
    return static_cast<int>(slots_.size());
  }
  int offset() const override {
    return offset_;
  }
  int trim(int) override {
    return 0;
  }
  bool is_trimmable() const override {
    return false;
  }
  size_t nbytes() const override;
  std::vector<mx::array> state() const override;
  std::unique_ptr<LayerCache> shared_copy(int tokens) const override;
  StoredState store() const override;
  void restore(const StoredState& state) override;
  std::unique_ptr<LayerCache> empty_copy() const override;

  // A cache with the same state. Arrays are shared until one of the two
  // replaces them.
  std::unique_ptr<RecurrentCache> fork() const;

 private:
  // An array, or one row of the array of a batch: rows that stay together are
  // not copied apart between their steps.
  struct Slot {
    mx::array value;
    int row = -1;  // -1: all of it

    mx::array own() const;
    size_t nbytes() const;
  };
  void check(int index) const;
  static std::optional<Slot> join_slot(
      std::span<RecurrentCache* const> rows,
      size_t index);

  std::vector<std::optional<Slot>> slots_;
  std::vector<int> left_padding_;
  int offset_ = 0;
};

}  // namespace mlxx::cache
