#include "mlxx/cache/rows.h"

#include <algorithm>

#include "mlxx/cache/dense.h"
#include "mlxx/cache/padded.h"

namespace mlxx::cache {
namespace {

mx::array row_of(const mx::array& a, int row) {
  if (row < 0 || row >= a.shape(0)) {
    fail(ErrorKind::internal, "cache", "row {} of {}", row, a.shape(0));
  }
  mx::Shape from(a.ndim(), 0);
  mx::Shape to = a.shape();
  from[0] = row;
  to[0] = row + 1;
  return mx::slice(a, from, to);
}

StoredState row_of(const StoredState& state, int row) {
  StoredState one = state;
  if (state.kind == "decoder") {
    if (row < 0 || row >= static_cast<int>(state.parts.size())) {
      fail(
          ErrorKind::internal,
          "cache",
          "row {} of {}",
          row,
          state.parts.size());
    }
    one.parts = {state.parts[static_cast<size_t>(row)]};
    return one;
  }
  for (auto& array : one.arrays) {
    array = row_of(array, row);
  }
  for (auto& part : one.parts) {
    part = row_of(part, row);
  }
  return one;
}

// A row of a padded batch of caches that hold all tokens.
StoredState without_padding(const StoredState& padded, int row) {
  if (row < 0 || row >= static_cast<int>(padded.numbers.size())) {
    fail(
        ErrorKind::internal,
        "cache",
        "row {} of {}",
        row,
        padded.numbers.size());
  }
  StoredState one = row_of(padded.parts[0], row);
  auto padding = static_cast<int>(padded.numbers[static_cast<size_t>(row)]);
  if (padding == 0) {
    return one;
  }
  if (one.kind != "dense") {
    fail(
        ErrorKind::unsupported,
        "cache",
        "a padded row of a '{}' cache cannot be taken out",
        one.kind);
  }
  one.numbers[0] = std::max<int64_t>(one.numbers[0] - padding, 0);
  for (auto& array : one.arrays) {
    mx::Shape from(array.ndim(), 0);
    from[2] = std::min(padding, array.shape(2));
    array = mx::slice(array, from, array.shape());
  }
  if (one.numbers[0] == 0) {
    one.arrays.clear();
  }
  return one;
}

mx::array zeros_before(const mx::array& tokens, int length) {
  mx::Shape shape = tokens.shape();
  shape[2] = length - tokens.shape(2);
  return shape[2] == 0
      ? tokens
      : mx::concatenate({mx::zeros(shape, tokens.dtype()), tokens}, 2);
}

// Rows of different lengths, with keys and values of every token.
std::unique_ptr<LayerCache> padded_batch(const std::vector<StoredState>& rows) {
  int longest = 0;
  for (const auto& row : rows) {
    longest = std::max(longest, static_cast<int>(row.numbers[0]));
  }
  std::vector<int> padding;
  std::vector<mx::array> keys;
  std::vector<mx::array> values;
  for (const auto& row : rows) {
    if (row.arrays.size() != 2) {
      fail(ErrorKind::unsupported, "cache", "a row without tokens in a batch");
    }
    padding.push_back(longest - static_cast<int>(row.numbers[0]));
    keys.push_back(zeros_before(row.arrays[0], longest));
    values.push_back(zeros_before(row.arrays[1], longest));
  }
  StoredState storage{
      "dense",
      {longest},
      {mx::concatenate(keys, 0), mx::concatenate(values, 0)},
      {}};
  auto batch =
      std::make_unique<PaddedCache>(std::make_unique<DenseCache>(), padding);
  batch->restore({"padded", {padding.begin(), padding.end()}, {}, {storage}});
  return batch;
}

// The same numbers everywhere: arrays one under the other.
StoredState stacked(const std::vector<StoredState>& rows) {
  StoredState all = rows.front();
  if (all.kind == "decoder") {
    all.parts.clear();
    for (const auto& row : rows) {
      all.parts.insert(all.parts.end(), row.parts.begin(), row.parts.end());
    }
    return all;
  }
  for (const auto& row : rows) {
    if (row.kind != all.kind || row.numbers != all.numbers ||
        row.arrays.size() != all.arrays.size() ||
        row.parts.size() != all.parts.size()) {
      fail(
          ErrorKind::unsupported,
          "cache",
          "rows of '{}' caches of different lengths in a batch",
          all.kind);
    }
  }
  for (size_t i = 0; i < all.arrays.size(); ++i) {
    std::vector<mx::array> arrays;
    for (const auto& row : rows) {
      arrays.push_back(row.arrays[i]);
    }
    all.arrays[i] = mx::concatenate(arrays, 0);
  }
  for (size_t i = 0; i < all.parts.size(); ++i) {
    std::vector<StoredState> parts;
    for (const auto& row : rows) {
      parts.push_back(row.parts[i]);
    }
    all.parts[i] = stacked(parts);
  }
  return all;
}

std::unique_ptr<LayerCache> merge_layer(
    const LayerCache& like,
    const std::vector<StoredState>& rows) {
  bool ragged = std::ranges::any_of(rows, [&](const StoredState& row) {
    return row.numbers != rows.front().numbers;
  });
  if (ragged && rows.front().kind == "dense") {
    return padded_batch(rows);
  }
  auto batch = like.empty_copy();
  batch->restore(stacked(rows));
  return batch;
}

}  // namespace

CacheList extract_row(const CacheList& batch, int row) {
  CacheList one;
  for (const auto& layer : batch) {
    StoredState state = layer->store();
    if (state.kind == "padded") {
      StoredState alone = without_padding(state, row);
      one.push_back(cache_as<PaddedCache>(*layer).storage().empty_copy());
      one.back()->restore(alone);
    } else {
      one.push_back(layer->empty_copy());
      one.back()->restore(row_of(state, row));
    }
  }
  return one;
}

CacheList merge_rows(std::span<const CacheList* const> rows) {
  if (rows.empty()) {
    fail(ErrorKind::internal, "cache", "a batch of no rows");
  }
  CacheList batch;
  for (size_t layer = 0; layer < rows.front()->size(); ++layer) {
    std::vector<StoredState> states;
    for (const CacheList* row : rows) {
      if (row->size() != rows.front()->size()) {
        fail(ErrorKind::internal, "cache", "rows of different models");
      }
      states.push_back((*row)[layer]->store());
    }
    batch.push_back(merge_layer(*(*rows.front())[layer], states));
  }
  return batch;
}

}  // namespace mlxx::cache
