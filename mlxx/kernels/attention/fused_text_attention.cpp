#include "mlxx/kernels/attention/fused_text_attention.h"

#include "mlxx/core/device.h"

namespace mlxx::kernels {
namespace {

// MLX's fused backward pass takes queries by this many only.
constexpr int kQueries = 128;

mx::array tokens(const mx::array& x, int begin, int end) {
  return mx::slice(
      x,
      {0, 0, begin, 0},
      {x.shape(0), x.shape(1), end, x.shape(3)});
}

mx::array with_more(const mx::array& x, int count) {
  return count == 0
      ? x
      : mx::pad(x, std::vector<int>{2}, mx::Shape{0}, mx::Shape{count});
}

// Queries at the end of the keys. What pads both at the end is seen by itself
// alone.
mx::array attend(
    const mx::array& queries,
    const mx::array& keys,
    const mx::array& values,
    float scale) {
  int length = queries.shape(2);
  int more = (kQueries - length % kQueries) % kQueries;
  mx::array out = mx::fast::scaled_dot_product_attention(
      with_more(queries, more),
      with_more(keys, more),
      with_more(values, more),
      scale,
      "causal");
  return more == 0 ? out : tokens(out, 0, length);
}

}  // namespace

bool fused_text_attention_covers(
    const mx::array& queries,
    const mx::array& keys,
    const mx::array& values,
    const TrainingAttention& options) {
  mx::Dtype dtype = queries.dtype();
  int size = queries.shape(3);
  return backend() == Backend::cuda &&
      (dtype == mx::float16 || dtype == mx::bfloat16) &&
      keys.dtype() == dtype && values.dtype() == dtype && size <= 128 &&
      size % 8 == 0 && values.shape(3) == size && options.softcap == 0 &&
      !options.sinks && options.segments.empty() &&
      (options.window == 0 || options.window >= queries.shape(2));
}

mx::array fused_text_attention(
    const mx::array& queries,
    const mx::array& keys,
    const mx::array& values,
    const TrainingAttention& options) {
  return attend(queries, keys, values, options.scale);
}

}  // namespace mlxx::kernels
