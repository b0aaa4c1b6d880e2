#include "mlxx/kernels/top_p/top_p.h"

#include "mlxx/base/error.h"
#include "mlxx/core/device.h"
#include "mlxx/kernels/top_p/top_p_cpu.h"

namespace mlxx::kernels {

namespace {

mx::array top_p_threshold_fallback(const mx::array& logprobs, float top_p) {
  auto rows = logprobs.shape(0);
  auto sorted = mx::sort(logprobs, -1);
  auto probs = mx::exp(sorted);
  // Mass of what is likelier than each entry.
  auto above = mx::cumsum(probs, -1, /*reverse=*/true, /*inclusive=*/false);
  auto total =
      mx::slice(above, {0, 0}, {rows, 1}) + mx::slice(probs, {0, 0}, {rows, 1});
  auto dropped =
      mx::sum(above >= mx::array(top_p) * total, -1, /*keepdims=*/true);
  // Without this a row whose mass is not a number would index past its end.
  dropped = mx::minimum(dropped, mx::array(logprobs.shape(1) - 1));
  return mx::take_along_axis(sorted, dropped, -1);
}

}  // namespace

mx::array
top_p_threshold(const mx::array& logprobs, float top_p, bool fallback) {
  if (logprobs.ndim() != 2 || logprobs.shape(1) < 1 ||
      logprobs.dtype() != mx::float32 || !(top_p > 0 && top_p < 1)) {
    fail(
        ErrorKind::internal,
        "top_p",
        "needs float32 rows and a mass in (0, 1), got {} dimensions and {}",
        logprobs.ndim(),
        top_p);
  }
  if (fallback || backend() != Backend::cpu) {
    return top_p_threshold_fallback(logprobs, top_p);
  }
  auto probs = mx::exp(logprobs);
  auto total = mx::sum(probs, -1, /*keepdims=*/true);
  return top_p_threshold_cpu(
      logprobs,
      probs,
      total,
      top_p,
      mx::default_stream(mx::default_device()));
}

}  // namespace mlxx::kernels
