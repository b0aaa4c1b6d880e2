#include "mlxx/kernels/attention/attention.h"

namespace mlxx::kernels {
namespace {

// [..., H, L, S] -> [..., K, H / K, L, S], where it has an axis of heads.
mx::array split_mask(const mx::array& mask, int kv_heads, int group) {
  if (mask.ndim() < 3) {
    return mask;
  }
  return mask.shape(-3) == 1 ? mx::expand_dims(mask, -3)
                             : mx::unflatten(mask, -3, {kv_heads, group});
}

mx::array causal_mask(int queries, int keys) {
  return mx::greater_equal(
      mx::expand_dims(mx::arange(keys - queries, keys), 1),
      mx::expand_dims(mx::arange(keys), 0));
}

mx::array softcapped_attention(
    const mx::array& queries,
    const mx::array& keys,
    const mx::array& values,
    const AttentionOptions& options) {
  int kv_heads = keys.shape(1);
  int group = queries.shape(1) / kv_heads;
  mx::Dtype dtype = queries.dtype();
  mx::array q = mx::multiply(queries, mx::array(options.scale, dtype));
  mx::array k = keys;
  mx::array v = values;
  if (group > 1) {
    q = mx::unflatten(q, 1, {kv_heads, group});
    k = mx::expand_dims(k, 2);
    v = mx::expand_dims(v, 2);
  }
  mx::array scores = mx::matmul(q, mx::swapaxes(k, -1, -2));
  mx::array cap(options.softcap, scores.dtype());
  scores = mx::multiply(mx::tanh(mx::divide(scores, cap)), cap);
  std::optional<mx::array> mask = options.mask.array;
  if (options.mask.mode == "causal") {
    mask = causal_mask(queries.shape(2), keys.shape(2));
  }
  if (mask) {
    mx::array placed = group > 1 ? split_mask(*mask, kv_heads, group) : *mask;
    mx::array lowest(mx::finfo(scores.dtype()).min, scores.dtype());
    scores = placed.dtype() == mx::bool_
        ? mx::where(placed, scores, lowest)
        : mx::add(scores, mx::astype(placed, scores.dtype()));
  }
  if (options.sinks) {
    mx::array sinks =
        mx::expand_dims(mx::astype(*options.sinks, scores.dtype()), {0, 2, 3});
    if (group > 1) {
      sinks = mx::unflatten(sinks, 1, {kv_heads, group});
    }
    mx::Shape shape = scores.shape();
    shape.back() = 1;
    scores = mx::concatenate({mx::broadcast_to(sinks, shape), scores}, -1);
  }
  scores = mx::softmax(scores, -1, true);
  if (options.sinks) {
    mx::Shape start(scores.ndim(), 0);
    start.back() = 1;
    scores = mx::slice(scores, start, scores.shape());
  }
  mx::array out = mx::matmul(scores, v);
  return group > 1 ? mx::flatten(out, 1, 2) : out;
}

}  // namespace

mx::array plain_attention(
    const mx::array& queries,
    const mx::array& keys,
    const mx::array& values,
    const AttentionOptions& options) {
  if (options.softcap > 0) {
    return softcapped_attention(queries, keys, values, options);
  }
  return mx::fast::scaled_dot_product_attention(
      queries,
      keys,
      values,
      options.scale,
      options.mask.mode,
      options.mask.array,
      options.sinks);
}

}  // namespace mlxx::kernels
