#include "mlxx/kernels/attention/attention.h"

#include "mlxx/base/error.h"
#include "mlxx/kernels/attention/attention_cpu.h"

namespace mlxx::kernels {
namespace {

mx::array attend_dense(
    const mx::array& queries,
    const DenseView& view,
    float scale,
    const AttentionMask& mask,
    const Selection& selection) {
  if (attention_cpu_covers(queries, view, mask, selection)) {
    return attention_cpu(
        queries,
        view,
        scale,
        mask.mode == "causal",
        selection);
  }
  return mx::fast::scaled_dot_product_attention(
      queries,
      view.keys,
      view.values,
      scale,
      mask.mode,
      mask.array);
}

}  // namespace

DenseView gather_row(const BlocksView& view, int row) {
  const auto& blocks = view.table[row];
  int length = view.lengths[row];
  mx::array index(blocks.data(), {static_cast<int>(blocks.size())}, mx::int32);
  auto gather = [&](const mx::array& pool) {
    int heads = pool.shape(1);
    int size = pool.shape(3);
    mx::array taken = mx::take(pool, index, 0);  // [n, K, 64, D]
    taken = mx::reshape(
        mx::transpose(taken, {1, 0, 2, 3}),
        {1, heads, static_cast<int>(blocks.size()) * kBlockTokens, size});
    return mx::slice(taken, {0, 0, 0, 0}, {1, heads, length, size});
  };
  return {gather(view.keys), gather(view.values)};
}

mx::array attention(
    const mx::array& queries,
    const KVView& view,
    float scale,
    const AttentionMask& mask,
    const Selection& selection) {
  if (const auto* dense = std::get_if<DenseView>(&view)) {
    return attend_dense(queries, *dense, scale, mask, selection);
  }
  const auto& blocks = std::get<BlocksView>(view);
  int rows = queries.shape(0);
  if (blocks.table.size() != static_cast<size_t>(rows)) {
    fail(
        ErrorKind::internal,
        "attention",
        "{} query rows, {} cache rows",
        rows,
        blocks.table.size());
  }
  if (rows == 1) {
    return attend_dense(queries, gather_row(blocks, 0), scale, mask, selection);
  }
  if (mask.array) {
    fail(
        ErrorKind::internal,
        "attention",
        "an array mask has no meaning for rows of different lengths");
  }
  std::vector<mx::array> results;
  for (int row = 0; row < rows; ++row) {
    auto query = mx::slice(
        queries,
        {row, 0, 0, 0},
        {row + 1, queries.shape(1), queries.shape(2), queries.shape(3)});
    results.push_back(
        attend_dense(query, gather_row(blocks, row), scale, mask, selection));
  }
  return mx::concatenate(results, 0);
}

}  // namespace mlxx::kernels
