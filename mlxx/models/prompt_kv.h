#pragma once

#include <optional>

#include "mlxx/cache/cache.h"

namespace mlxx::models {

// Keys and values of one layer while a prompt, or a piece of one, is computed:
// what was there before it, and what it adds.
class PromptKv : public cache::KVCache {
 public:
  explicit PromptKv(
      int window,
      std::optional<kernels::DenseView> before = std::nullopt);

  // Once.
  cache::KVView append(const mx::array& keys, const mx::array& values) override;
  // What append() was given, [B, K, L, D]; internal before that.
  const mx::array& new_keys() const;
  const mx::array& new_values() const;

  int offset() const override;
  int trim(int) override {
    return 0;
  }
  bool is_trimmable() const override {
    return false;
  }
  size_t nbytes() const override {
    return 0;
  }
  std::vector<mx::array> state() const override {
    return {};
  }
  Mask make_mask(int L) const override;
  int window() const override {
    return window_;
  }

 private:
  int before_tokens() const {
    return before_ ? before_->keys.shape(2) : 0;
  }

  int window_;
  std::optional<kernels::DenseView> before_;
  std::optional<kernels::DenseView> added_;
};

}  // namespace mlxx::models
