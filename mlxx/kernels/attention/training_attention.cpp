#include "mlxx/kernels/attention/training_attention.h"

#include "mlxx/base/error.h"
#include "mlxx/kernels/attention/blocked_attention.h"
#include "mlxx/kernels/attention/fused_text_attention.h"
#include "mlxx/kernels/attention/training_attention_cpu.h"

namespace mlxx::kernels {
namespace {

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
  // Its backward pass adds up in no fixed order.
  if (!selection.deterministic &&
      fused_text_attention_covers(queries, keys, values, options)) {
    return fused_text_attention(queries, keys, values, options);
  }
  return blocked_attention(queries, keys, values, options);
}

}  // namespace mlxx::kernels
