#include "mlxx/kernels/attention/device_text_attention.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "mlxx/core/custom_kernel.h"
#include "mlxx/core/custom_vjp.h"
#include "mlxx/core/device.h"
#include "mlxx/kernels/attention/seen_tokens.h"
#include "mlxx/kernels/attention/text_attention_text.h"
#include "mlxx/kernels/attention/text_attention_tiles_text.h"

namespace mlxx::kernels {
namespace {

using Arrays = std::vector<mx::array>;

// As text_attention_tiles.cuh has them.
constexpr int kStep = 64;
constexpr int kStay = 128;
constexpr int kThreads = 256;
constexpr int kSpanNumbers = 8;
constexpr int kLargestHead = 128;

int shared_bytes(int head) {
  return 2 * (kStay + 2 * kStep) * (head + 8) * 2 + 2 * kStep * (2 * 4 + 16);
}

// Arguments that every pass has, and its inputs of four axes.
constexpr auto kBegin = R"(
  extern __shared__ __align__(16) char shared_bytes[];
  namespace at = mlxx_text_attention;
  at::Sizes sizes{q_shape[1], k_shape[1], q_shape[2], scale[0]};
  auto rows = reinterpret_cast<const int4*>(seen);
  auto tiles = reinterpret_cast<const at::Span*>(spans);
  at::Heads<T> of_q = {q, q_strides[0], q_strides[1], q_strides[2], q_strides[3]};
  at::Heads<T> of_k = {k, k_strides[0], k_strides[1], k_strides[2], k_strides[3]};
  at::Heads<T> of_v = {v, v_strides[0], v_strides[1], v_strides[2], v_strides[3]};
)";

constexpr auto kForward = R"(
  at::forward<T, D>(
      of_q, of_k, of_v, rows, tiles, sizes, shared_bytes, out, log_sums);
)";

constexpr auto kQueries = R"(
  at::Heads<T> of_y = {y, y_strides[0], y_strides[1], y_strides[2], y_strides[3]};
  at::Heads<T> of_d = {d, d_strides[0], d_strides[1], d_strides[2], d_strides[3]};
  at::query_gradients<T, D>(
      of_q, of_k, of_v, of_y, of_d, log_sums, rows, tiles, sizes,
      shared_bytes, d_q, deltas);
)";

constexpr auto kKeys = R"(
  at::Heads<T> of_d = {d, d_strides[0], d_strides[1], d_strides[2], d_strides[3]};
  at::key_gradients<T, D>(
      of_q, of_k, of_v, of_d, log_sums, deltas, rows, tiles, sizes,
      shared_bytes, d_k, d_v);
)";

CustomKernel make_kernel(
    const char* name,
    const char* body,
    std::vector<std::string> more_inputs,
    std::vector<std::string> outputs,
    int head) {
  std::vector<std::string> inputs{"q", "k", "v", "seen", "spans", "scale"};
  inputs.insert(inputs.end(), more_inputs.begin(), more_inputs.end());
  return CustomKernel(
      {.name = name,
       .input_names = std::move(inputs),
       .output_names = std::move(outputs),
       .cuda =
           DeviceKernelSource{
               .source = std::string(kBegin) + body,
               .header =
                   std::string(kTextAttentionTilesText) + kTextAttentionText,
               .shared_memory = shared_bytes(head)},
       .ensure_row_contiguous = false});
}

// The passes for heads of one size.
struct Passes {
  CustomKernel forward;
  CustomKernel queries;
  CustomKernel keys;

  explicit Passes(int head)
      : forward(make_kernel(
            "mlxx_text_attention",
            kForward,
            {},
            {"out", "log_sums"},
            head)),
        queries(make_kernel(
            "mlxx_text_attention_queries",
            kQueries,
            {"y", "d", "log_sums"},
            {"d_q", "deltas"},
            head)),
        keys(make_kernel(
            "mlxx_text_attention_keys",
            kKeys,
            {"d", "log_sums", "deltas"},
            {"d_k", "d_v"},
            head)) {}
};

template <int... MULTIPLES>
const Passes& passes_of(int head, std::integer_sequence<int, MULTIPLES...>) {
  static const Passes passes[] = {Passes(16 * (MULTIPLES + 1))...};
  return passes[head / 16 - 1];
}

const Passes& passes_of(int head) {
  return passes_of(head, std::make_integer_sequence<int, kLargestHead / 16>());
}

// What each query sees, [L, 4], and of each tile of queries the widest and the
// narrowest of that, [tiles, 8].
std::pair<mx::array, mx::array> seen_arrays(
    const TrainingAttention& options,
    int length) {
  auto seen = seen_tokens(options.segments, options.window, length);
  std::vector<int32_t> rows;
  std::vector<int32_t> spans;
  constexpr int32_t kFar = std::numeric_limits<int32_t>::max();
  for (int first = 0; first < length; first += kStep) {
    SeenTokens wide{kFar, 0, kFar, 0};
    SeenTokens narrow{0, 0, 0, kFar};
    for (int i = first; i < std::min(length, first + kStep); ++i) {
      const auto& s = seen[i];
      rows.insert(rows.end(), {s.parent_begin, s.parent_end, s.begin, s.end});
      if (s.parent_end > s.parent_begin) {
        wide.parent_begin = std::min(wide.parent_begin, s.parent_begin);
        wide.parent_end = std::max(wide.parent_end, s.parent_end);
      }
      wide.begin = std::min(wide.begin, s.begin);
      wide.end = std::max(wide.end, s.end);
      narrow.begin = std::max(narrow.begin, s.begin);
      narrow.end = std::min(narrow.end, s.end);
    }
    spans.insert(
        spans.end(),
        {wide.parent_begin,
         wide.parent_end,
         wide.begin,
         wide.end,
         narrow.begin,
         narrow.end,
         0,
         0});
  }
  int tiles = static_cast<int>(spans.size()) / kSpanNumbers;
  return {
      mx::array(rows.data(), {length, 4}, mx::int32),
      mx::array(spans.data(), {tiles, kSpanNumbers}, mx::int32)};
}

CustomKernelCall call_of(Arrays inputs, int heads) {
  const mx::array& q = inputs[0];
  int tiles = (q.shape(2) + kStay - 1) / kStay;
  CustomKernelCall call;
  call.template_values = {{"T", q.dtype()}, {"D", q.shape(3)}};
  // Long blocks first, those of all heads: short ones fill what is left.
  call.grid = {q.shape(0) * heads * kThreads, tiles, 1};
  call.threadgroup = {kThreads, 1, 1};
  call.inputs = std::move(inputs);
  return call;
}

// [B, H, L, D] of a result whose heads lie beside each other, as projections
// have them.
mx::array heads_first(const mx::array& x) {
  return mx::transpose(x, {0, 2, 1, 3});
}

mx::Shape heads_beside(const mx::array& x) {
  return {x.shape(0), x.shape(2), x.shape(1), x.shape(3)};
}

mx::Shape of_queries(const mx::array& q) {
  return {q.shape(0), q.shape(1), q.shape(2)};
}

// Output [B, H, L, D] and log-sums [B, H, L] float32.
Arrays forward(const Arrays& inputs) {
  const mx::array& q = inputs[0];
  CustomKernelCall call = call_of(inputs, q.shape(1));
  call.output_shapes = {heads_beside(q), of_queries(q)};
  call.output_dtypes = {q.dtype(), mx::float32};
  auto results = passes_of(q.shape(3)).forward(call);
  return {heads_first(results[0]), results[1]};
}

Arrays backward(Arrays inputs, const mx::array& d, const Arrays& outputs) {
  const mx::array q = inputs[0];
  const mx::array k = inputs[1];
  const Passes& passes = passes_of(q.shape(3));
  Arrays of_queries_inputs = inputs;
  of_queries_inputs.insert(
      of_queries_inputs.end(),
      {outputs[0], d, outputs[1]});
  CustomKernelCall first = call_of(std::move(of_queries_inputs), q.shape(1));
  first.output_shapes = {heads_beside(q), of_queries(q)};
  first.output_dtypes = {q.dtype(), mx::float32};
  auto d_q = passes.queries(first);
  inputs.insert(inputs.end(), {d, outputs[1], d_q[1]});
  CustomKernelCall second = call_of(std::move(inputs), k.shape(1));
  second.output_shapes = {heads_beside(k), heads_beside(k)};
  second.output_dtypes = {k.dtype(), k.dtype()};
  auto d_kv = passes.keys(second);
  return {heads_first(d_q[0]), heads_first(d_kv[0]), heads_first(d_kv[1])};
}

}  // namespace

bool device_text_attention_covers(
    const mx::array& queries,
    const mx::array& keys,
    const mx::array& values,
    const TrainingAttention& options) {
  mx::Dtype dtype = queries.dtype();
  int head = queries.shape(3);
  return backend() == Backend::cuda &&
      (dtype == mx::float16 || dtype == mx::bfloat16) &&
      keys.dtype() == dtype && values.dtype() == dtype &&
      values.shape(3) == head && head % 16 == 0 && head <= kLargestHead &&
      queries.size() > 0 && options.softcap == 0 && !options.sinks;
}

mx::array device_text_attention(
    const mx::array& queries,
    const mx::array& keys,
    const mx::array& values,
    const TrainingAttention& options) {
  auto [seen, spans] = seen_arrays(options, queries.shape(2));
  mx::array scale({options.scale});
  auto with_masks = [=](const Arrays& x) {
    return Arrays{x[0], x[1], x[2], seen, spans, scale};
  };
  auto function = custom_vjp(
      "attention of whole texts",
      [=](const Arrays& x) { return forward(with_masks(x)); },
      [=](const Arrays& x, const Arrays& d, const Arrays& outputs) {
        return backward(with_masks(x), d[0], outputs);
      });
  return function({queries, keys, values})[0];
}

}  // namespace mlxx::kernels
