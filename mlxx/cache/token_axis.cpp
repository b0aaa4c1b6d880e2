#include "mlxx/cache/token_axis.h"

#include "mlxx/base/error.h"

namespace mlxx::cache {

mx::array slice_tokens(const mx::array& a, int from, int to) {
  return mx::slice(
      a,
      {0, 0, from, 0},
      {a.shape(0), a.shape(1), to, a.shape(3)});
}

mx::array write_tokens(mx::array a, const mx::array& update, int at) {
  mx::Shape stop = {a.shape(0), a.shape(1), at + update.shape(2), a.shape(3)};
  return mx::slice_update(std::move(a), update, {0, 0, at, 0}, stop);
}

mx::array zero_tokens(const mx::array& like, int tokens) {
  return mx::zeros(
      {like.shape(0), like.shape(1), tokens, like.shape(3)},
      like.dtype());
}

namespace {

bool same_but_length(const mx::array& a, const mx::array& b) {
  return a.shape(0) == b.shape(0) && a.shape(1) == b.shape(1) &&
      a.shape(3) == b.shape(3) && a.dtype() == b.dtype();
}

}  // namespace

void check_append(
    const mx::array& keys,
    const mx::array& values,
    const mx::array* held_keys,
    const mx::array* held_values) {
  bool shaped = keys.ndim() == 4 && values.ndim() == 4 &&
      keys.shape(0) == values.shape(0) && keys.shape(1) == values.shape(1) &&
      keys.shape(2) == values.shape(2) && keys.shape(2) > 0;
  if (!shaped) {
    fail(
        ErrorKind::internal,
        "cache",
        "keys and values must be [B, K, L, D], found ({}) and ({})",
        fmt::join(keys.shape().begin(), keys.shape().end(), ", "),
        fmt::join(values.shape().begin(), values.shape().end(), ", "));
  }
  if ((held_keys && !same_but_length(keys, *held_keys)) ||
      (held_values && !same_but_length(values, *held_values))) {
    fail(
        ErrorKind::internal,
        "cache",
        "keys ({}) do not fit what the cache holds",
        fmt::join(keys.shape().begin(), keys.shape().end(), ", "));
  }
}

}  // namespace mlxx::cache
