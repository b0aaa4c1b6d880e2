#include "mlxx/kernels/attention/shape_steps.h"

#include "mlxx/core/compiled_function.h"
#include "mlxx/core/device.h"

namespace mlxx::kernels {
namespace {

constexpr int kLeastStep = 64;
// Tokens before the queries that need no mask of their own: what chunks of a
// prompt, powers of two, leave there.
constexpr int kRoundStart = 256;
constexpr int kLargestHead = 128;

mx::array with_tokens(const mx::array& a, int tokens) {
  int added = tokens - a.shape(2);
  return added == 0 ? a
                    : mx::pad(
                          a,
                          std::vector<int>{2},
                          mx::Shape{0},
                          mx::Shape{added},
                          mx::array(0, a.dtype()));
}

// [queries, keys] bool: query i sees `before` + i + 1 keys.
mx::array causal(int queries, int keys, int before) {
  return mx::greater_equal(
      mx::expand_dims(mx::arange(before, before + queries), 1),
      mx::expand_dims(mx::arange(keys), 0));
}

}  // namespace

int round_length(int length) {
  int step = kLeastStep;
  while (step * 8 < length) {
    step *= 2;
  }
  return (length + step - 1) / step * step;
}

bool wants_round_lengths(
    const mx::array& queries,
    const DenseView& view,
    const AttentionOptions& options,
    const Selection& selection) {
  int L = queries.shape(2);
  int before = view.keys.shape(2) - L;
  bool half = queries.dtype() == mx::bfloat16 || queries.dtype() == mx::float16;
  return !selection.fallback && backend() == Backend::cuda && half && L > 1 &&
      before >= 0 && options.mask.mode == "causal" && options.softcap == 0 &&
      queries.shape(3) % 8 == 0 && queries.shape(3) <= kLargestHead &&
      view.values.shape(3) % 8 == 0 && view.values.shape(3) <= kLargestHead &&
      !is_shapeless_tracing() &&
      (round_length(L) != L || before % kRoundStart != 0);
}

mx::array attention_of_round_lengths(
    const mx::array& queries,
    const DenseView& view,
    const AttentionOptions& options) {
  int L = queries.shape(2);
  int before = view.keys.shape(2) - L;
  int length = round_length(L);
  AttentionOptions own = options;
  int keys = before + length;
  if (before % kRoundStart != 0) {
    keys = round_length(keys);
    own.mask = {"", causal(length, keys, before)};
  }
  mx::array y = plain_attention(
      with_tokens(queries, length),
      with_tokens(view.keys, keys),
      with_tokens(view.values, keys),
      own);
  mx::Shape stop = y.shape();
  stop[2] = L;
  return length == L ? y : mx::slice(y, {0, 0, 0, 0}, stop);
}

}  // namespace mlxx::kernels
