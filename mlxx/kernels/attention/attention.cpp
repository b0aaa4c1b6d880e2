#include "mlxx/kernels/attention/attention.h"

#include <cmath>

#include "mlxx/base/error.h"
#include "mlxx/kernels/attention/attention_cpu.h"
#include "mlxx/kernels/attention/product_attention.h"
#include "mlxx/kernels/attention/shape_steps.h"

namespace mlxx::kernels {
namespace {

mx::array attend_dense(
    const mx::array& queries,
    const DenseView& view,
    const AttentionOptions& options,
    const Selection& selection) {
  if (attention_cpu_covers(queries, view, options, selection)) {
    return attention_cpu(queries, view, options, selection);
  }
  if (wants_products(queries, view, options, selection)) {
    return attention_by_products(queries, view, options);
  }
  if (wants_round_lengths(queries, view, options, selection)) {
    return attention_of_round_lengths(queries, view, options);
  }
  return plain_attention(queries, view.keys, view.values, options);
}

// Before lazy operations make of it an exception with other words.
void check(const mx::array& queries, const AttentionOptions& options) {
  if (queries.ndim() != 4) {
    fail(
        ErrorKind::internal,
        "attention",
        "queries have {} axes, not 4",
        queries.ndim());
  }
  if (!(options.softcap >= 0) || std::isinf(options.softcap)) {
    fail(
        ErrorKind::internal,
        "attention",
        "the softcap is {}",
        options.softcap);
  }
  if (options.mask.mode != "" && options.mask.mode != "causal") {
    fail(
        ErrorKind::internal,
        "attention",
        "mask mode '{}' is not known",
        options.mask.mode);
  }
  if (options.mask.array && options.mask.mode == "causal") {
    fail(ErrorKind::internal, "attention", "both a causal mask and an array");
  }
  const auto& sinks = options.sinks;
  if (sinks && (sinks->ndim() != 1 || sinks->shape(0) != queries.shape(1))) {
    fail(
        ErrorKind::internal,
        "attention",
        "sinks of shape ({}) for {} heads",
        fmt::join(sinks->shape().begin(), sinks->shape().end(), ", "),
        queries.shape(1));
  }
}

mx::array query_row(const mx::array& queries, int row) {
  return mx::slice(
      queries,
      {row, 0, 0, 0},
      {row + 1, queries.shape(1), queries.shape(2), queries.shape(3)});
}

void check_rows(const mx::array& queries, size_t rows) {
  if (static_cast<size_t>(queries.shape(0)) != rows) {
    fail(
        ErrorKind::internal,
        "attention",
        "{} query rows, {} cache rows",
        queries.shape(0),
        rows);
  }
}

mx::array attend_rows(
    const mx::array& queries,
    const RowsView& view,
    const AttentionOptions& options,
    const Selection& selection) {
  check_rows(queries, view.rows.size());
  if (options.mask.array) {
    fail(ErrorKind::internal, "attention", "rows have masks of their own");
  }
  std::vector<mx::array> results;
  for (size_t row = 0; row < view.rows.size(); ++row) {
    AttentionOptions own = options;
    if (view.rows[row].mask) {
      own.mask = {"", view.rows[row].mask};
    }
    results.push_back(attend_dense(
        query_row(queries, static_cast<int>(row)),
        view.rows[row].tokens,
        own,
        selection));
  }
  return results.size() == 1 ? results[0] : mx::concatenate(results, 0);
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
    const AttentionOptions& options,
    const Selection& selection) {
  check(queries, options);
  if (const auto* dense = std::get_if<DenseView>(&view)) {
    return attend_dense(queries, *dense, options, selection);
  }
  if (const auto* rows = std::get_if<RowsView>(&view)) {
    return attend_rows(queries, *rows, options, selection);
  }
  const auto& blocks = std::get<BlocksView>(view);
  int rows = queries.shape(0);
  check_rows(queries, blocks.table.size());
  if (rows == 1) {
    return attend_dense(queries, gather_row(blocks, 0), options, selection);
  }
  if (options.mask.array) {
    fail(
        ErrorKind::internal,
        "attention",
        "an array mask has no meaning for rows of different lengths");
  }
  std::vector<mx::array> results;
  for (int row = 0; row < rows; ++row) {
    results.push_back(attend_dense(
        query_row(queries, row),
        gather_row(blocks, row),
        options,
        selection));
  }
  return mx::concatenate(results, 0);
}

}  // namespace mlxx::kernels
