#include "mlxx/models/prompt_kv.h"

namespace mlxx::models {

PromptKv::PromptKv(int window, std::optional<kernels::DenseView> before)
    : window_(window), before_(std::move(before)) {}

cache::KVView PromptKv::append(const mx::array& keys, const mx::array& values) {
  if (added_) {
    fail(ErrorKind::internal, "cache", "a layer of a prompt was given twice");
  }
  added_ = kernels::DenseView{keys, values};
  if (!before_) {
    return *added_;
  }
  auto joined = [](const mx::array& before, const mx::array& added) {
    return mx::concatenate({mx::astype(before, added.dtype()), added}, 2);
  };
  return kernels::DenseView{
      joined(before_->keys, keys),
      joined(before_->values, values)};
}

const mx::array& PromptKv::new_keys() const {
  if (!added_) {
    fail(ErrorKind::internal, "cache", "a layer gave no keys");
  }
  return added_->keys;
}

const mx::array& PromptKv::new_values() const {
  new_keys();
  return added_->values;
}

int PromptKv::offset() const {
  return before_tokens() + (added_ ? added_->keys.shape(2) : 0);
}

cache::KVCache::Mask PromptKv::make_mask(int L) const {
  int from = before_tokens();
  if (window_ == 0 || from + L <= window_) {
    return {"causal", std::nullopt};
  }
  mx::array columns = mx::expand_dims(mx::arange(from + L), 0);
  mx::array rows = mx::expand_dims(mx::arange(from, from + L), 1);
  mx::array window(window_, rows.dtype());
  return {
      "",
      mx::logical_and(
          mx::greater_equal(rows, columns),
          mx::less(rows, mx::add(columns, window)))};
}

}  // namespace mlxx::models
