#include "mlxx/kernels/attention/training_attention.h"

#include "mlxx/base/error.h"
#include "mlxx/kernels/attention/attention.h"
#include "mlxx/kernels/attention/blocked_attention.h"
#include "mlxx/kernels/attention/device_text_attention.h"
#include "mlxx/kernels/attention/fused_text_attention.h"
#include "mlxx/kernels/attention/training_attention_cpu.h"

namespace mlxx::kernels {
namespace {

// Scores that plain operations may keep for the backward pass.
constexpr int64_t kPlainScores = int64_t{1} << 21;

// Whether the reference's own operations compute it, which keep all scores.
bool is_plain(
    const mx::array& queries,
    const TrainingAttention& options,
    const Selection& selection) {
  int64_t length = queries.shape(2);
  return selection.fallback && options.segments.empty() &&
      queries.shape(0) * queries.shape(1) * length * length <= kPlainScores;
}

mx::array plain_text_attention(
    const mx::array& queries,
    const mx::array& keys,
    const mx::array& values,
    const TrainingAttention& options) {
  AttentionOptions plain{
      .scale = options.scale,
      .softcap = options.softcap,
      .sinks = options.sinks};
  int length = queries.shape(2);
  if (options.window > 0 && length > options.window) {
    mx::array query = mx::expand_dims(mx::arange(length), 1);
    mx::array key = mx::expand_dims(mx::arange(length), 0);
    plain.mask.array = mx::logical_and(
        mx::greater_equal(query, key),
        mx::less(query, mx::add(key, mx::array(options.window))));
  } else if (length > 1) {
    plain.mask.mode = "causal";
  }
  return plain_attention(queries, keys, values, plain);
}

void check(
    const mx::array& queries,
    const mx::array& keys,
    const mx::array& values,
    const TrainingAttention& options) {
  auto wrong = [&](const char* what) {
    fail(ErrorKind::internal, "training attention", "{}", what);
  };
  if (queries.ndim() != 4 || keys.ndim() != 4 || values.ndim() != 4) {
    wrong("queries, keys and values have four axes");
  }
  if (keys.shape(0) != queries.shape(0) || keys.shape(2) != queries.shape(2) ||
      keys.shape(3) != queries.shape(3) || values.shape(0) != keys.shape(0) ||
      values.shape(1) != keys.shape(1) || values.shape(2) != keys.shape(2) ||
      queries.shape(1) % keys.shape(1) != 0) {
    wrong("shapes of queries, keys and values do not fit");
  }
  if (options.sinks &&
      (options.sinks->ndim() != 1 ||
       options.sinks->shape(0) != queries.shape(1))) {
    wrong("not one sink for each head");
  }
  if (!options.segments.empty() && queries.shape(0) != 1) {
    wrong("segments of more than one row");
  }
}

}  // namespace

mx::array training_attention(
    const mx::array& queries,
    const mx::array& keys,
    const mx::array& values,
    const TrainingAttention& options,
    const Selection& selection) {
  check(queries, keys, values, options);
  if (training_attention_cpu_covers(queries, keys, values, selection)) {
    return training_attention_cpu(queries, keys, values, options, selection);
  }
  if (is_plain(queries, options, selection)) {
    return plain_text_attention(queries, keys, values, options);
  }
  // MLX's backward pass adds up in no fixed order.
  if (!selection.deterministic &&
      fused_text_attention_covers(queries, keys, values, options)) {
    return fused_text_attention(queries, keys, values, options);
  }
  if (!selection.fallback &&
      device_text_attention_covers(queries, keys, values, options)) {
    return device_text_attention(queries, keys, values, options);
  }
  return blocked_attention(queries, keys, values, options);
}

}  // namespace mlxx::kernels
