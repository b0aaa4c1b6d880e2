#include "mlxx/kernels/attention/product_attention.h"

#include <limits>

#include "mlxx/core/compiled_function.h"
#include "mlxx/core/device.h"

namespace mlxx::kernels {
namespace {

// Scores, all heads together. Above it the memory that they go through costs
// more than a plan that later prompts use again.
constexpr int64_t kMostOfOneRow = int64_t{1} << 22;
constexpr int64_t kMostOfRows = int64_t{1} << 26;

}  // namespace

bool wants_products(
    const mx::array& queries,
    const DenseView& view,
    const AttentionOptions& options,
    const Selection& selection) {
  bool half = queries.dtype() == mx::bfloat16 || queries.dtype() == mx::float16;
  int rows = queries.shape(0);
  int64_t scores =
      int64_t{rows} * queries.shape(1) * queries.shape(2) * view.keys.shape(2);
  return !selection.fallback && backend() == Backend::cuda && half &&
      queries.shape(2) > 1 && view.keys.shape(2) >= queries.shape(2) &&
      options.softcap == 0 && !options.sinks && !is_shapeless_tracing() &&
      scores <= (rows > 1 ? kMostOfRows : kMostOfOneRow);
}

mx::array attention_by_products(
    const mx::array& queries,
    const DenseView& view,
    const AttentionOptions& options) {
  const int B = queries.shape(0);
  const int H = queries.shape(1);
  const int L = queries.shape(2);
  const int D = queries.shape(3);
  const int K = view.keys.shape(1);
  const int S = view.keys.shape(2);
  auto wide = [](const mx::array& a) { return mx::astype(a, mx::float32); };
  mx::array q = mx::reshape(
      mx::multiply(wide(queries), mx::array(options.scale)),
      {B, K, H / K * L, D});
  mx::array scores = mx::reshape(
      mx::matmul(q, mx::swapaxes(wide(view.keys), -1, -2)),
      {B, H, L, S});
  std::optional<mx::array> mask = options.mask.array;
  if (options.mask.mode == "causal") {
    mask = mx::greater_equal(
        mx::expand_dims(mx::arange(S - L, S), 1),
        mx::expand_dims(mx::arange(S), 0));
  }
  if (mask && mask->dtype() == mx::bool_) {
    scores = mx::where(
        *mask,
        scores,
        mx::array(-std::numeric_limits<float>::infinity()));
  } else if (mask) {
    scores = mx::add(scores, *mask);
  }
  mx::array shares = mx::reshape(mx::softmax(scores, -1), {B, K, H / K * L, S});
  mx::array y = mx::reshape(
      mx::matmul(shares, wide(view.values)),
      {B, H, L, view.values.shape(3)});
  return mx::astype(y, queries.dtype());
}

}  // namespace mlxx::kernels
