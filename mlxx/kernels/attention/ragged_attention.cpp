#include "mlxx/kernels/attention/ragged_attention.h"

#include <numeric>

#include "mlxx/base/error.h"
#include "mlxx/kernels/attention/ragged_attention_cpu.h"
#include "mlxx/kernels/cpu_primitive.h"
#include "mlxx/kernels/cpu_variants.h"

namespace mlxx::kernels {
namespace {

// Boolean [L, L], true where the query of the row sees the key of the column.
mx::array visible(int length, const RaggedAttention& texts) {
  mx::array positions = mx::arange(length);
  mx::array distance = mx::subtract(
      mx::expand_dims(positions, 1),
      mx::expand_dims(positions, 0));
  mx::array seen = mx::full({length, length}, true, mx::bool_);
  if (texts.reach > 0) {
    seen = mx::less_equal(mx::abs(distance), mx::array(texts.reach));
  }
  if (texts.causal) {
    seen = mx::logical_and(seen, mx::greater_equal(distance, mx::array(0)));
  }
  return seen;
}

// Rows [begin, begin + n * length) as [n, heads, length, D].
mx::array rows_of(const mx::array& x, int begin, int n, int length) {
  int heads = x.shape(1);
  int size = x.shape(2);
  mx::array part =
      mx::slice(x, {begin, 0, 0}, {begin + n * length, heads, size});
  return mx::transpose(
      mx::reshape(part, {n, length, heads, size}),
      {0, 2, 1, 3});
}

mx::array attend_by_runs(
    const mx::array& queries,
    const mx::array& keys,
    const mx::array& values,
    const RaggedAttention& texts) {
  std::vector<mx::array> results;
  const auto& lengths = texts.lengths;
  int begin = 0;
  for (size_t i = 0; i < lengths.size();) {
    int length = lengths[i];
    size_t next = i;
    while (next < lengths.size() && lengths[next] == length) {
      ++next;
    }
    int n = static_cast<int>(next - i);
    bool is_cut = texts.causal || (texts.reach > 0 && texts.reach < length - 1);
    mx::array out = mx::fast::scaled_dot_product_attention(
        rows_of(queries, begin, n, length),
        rows_of(keys, begin, n, length),
        rows_of(values, begin, n, length),
        texts.scale,
        is_cut ? "array" : "",
        is_cut ? std::optional(visible(length, texts)) : std::nullopt);
    results.push_back(mx::reshape(
        mx::transpose(out, {0, 2, 1, 3}),
        {n * length, queries.shape(1), queries.shape(2)}));
    begin += n * length;
    i = next;
  }
  return results.size() == 1 ? results[0] : mx::concatenate(results, 0);
}

class CpuRaggedAttention : public CpuPrimitive {
 public:
  CpuRaggedAttention(const RaggedAttention& texts, const Selection& selection)
      : CpuPrimitive(
            "CpuRaggedAttention",
            [texts](const std::vector<mx::array>& inputs) {
              return std::vector{
                  attend_by_runs(inputs[0], inputs[1], inputs[2], texts)};
            }),
        texts_(texts),
        selection_(selection) {}

  void eval_cpu(const std::vector<mx::array>& inputs, mx::array& out) override {
    out.set_data(mx::allocator::malloc(out.nbytes()));
    auto job = std::make_shared<const RaggedAttentionJob>(
        texts_,
        RaggedAttentionJob::Sizes{
            out.shape(1),
            inputs[1].shape(1),
            out.shape(2)},
        block_attention(selection_.instruction_set));
    RaggedAttentionJob::Arrays arrays{
        inputs[0].data<float>(),
        inputs[1].data<float>(),
        inputs[2].data<float>(),
        out.data<float>()};
    dispatch([job, arrays, threads = selection_.threads] {
      threads->run(
          [&](int thread) { job->run(arrays, thread, threads->size()); });
    });
  }

 private:
  RaggedAttention texts_;
  Selection selection_;
};

}  // namespace

mx::array ragged_attention(
    const mx::array& queries,
    const mx::array& keys,
    const mx::array& values,
    const RaggedAttention& texts,
    const Selection& selection) {
  auto is_covered = [](const mx::array& a) {
    return a.dtype() == mx::float32 && a.size() > 0 &&
        a.shape(2) % kHeadSizeStep == 0;
  };
  int rows = std::accumulate(texts.lengths.begin(), texts.lengths.end(), 0);
  if (rows != queries.shape(0) || rows != keys.shape(0)) {
    fail(
        ErrorKind::internal,
        "attention",
        "texts of {} tokens, {} rows of queries, {} of keys",
        rows,
        queries.shape(0),
        keys.shape(0));
  }
  bool covered = selection.has_cpu_kernels() && is_covered(queries) &&
      is_covered(keys) && is_covered(values) &&
      keys.shape(2) == queries.shape(2) && values.shape() == keys.shape();
  if (!covered) {
    return attend_by_runs(queries, keys, values, texts);
  }
  return make_lazy(
      queries.shape(),
      std::make_shared<CpuRaggedAttention>(texts, selection),
      {mx::contiguous(queries), mx::contiguous(keys), mx::contiguous(values)});
}

}  // namespace mlxx::kernels
