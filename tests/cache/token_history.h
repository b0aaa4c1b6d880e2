#pragma once

#include <vector>

#include "mlxx/cache/cache.h"

namespace mlxx::cache {

// Stand-ins for keys and values: token t of row r and head h holds
// t + 1000 * h + 10000 * r, negated in the values.
inline mx::array marked(const std::vector<int>& tokens, int rows, int heads) {
  std::vector<float> data;
  for (int r = 0; r < rows; ++r) {
    for (int h = 0; h < heads; ++h) {
      for (int t : tokens) {
        float mark = static_cast<float>(t + 1000 * h + 10000 * r);
        data.insert(data.end(), {mark, mark + 0.5f});
      }
    }
  }
  return mx::array(
      data.data(),
      {rows, heads, static_cast<int>(tokens.size()), 2},
      mx::float32);
}

inline std::vector<int> count_up(int from, int n) {
  std::vector<int> tokens;
  for (int i = 0; i < n; ++i) {
    tokens.push_back(from + i);
  }
  return tokens;
}

inline KVView append_marked(
    KVCache& cache,
    const std::vector<int>& tokens,
    int rows = 1,
    int heads = 2) {
  mx::array keys = marked(tokens, rows, heads);
  return cache.append(keys, mx::negative(keys));
}

// The tokens that a row of the view holds, in storage order; checks that
// heads and values agree (an empty result if they do not).
inline std::vector<int> tokens_in(const KVView& view, int row = 0) {
  DenseView dense = std::holds_alternative<DenseView>(view)
      ? std::get<DenseView>(view)
      : kernels::gather_row(std::get<BlocksView>(view), row);
  int at = std::holds_alternative<DenseView>(view) ? row : 0;
  mx::array keys = mx::contiguous(dense.keys);
  mx::array values = mx::contiguous(dense.values);
  mx::eval(keys, values);
  int heads = keys.shape(1);
  int length = keys.shape(2);
  std::vector<int> tokens;
  for (int t = 0; t < length; ++t) {
    int token = 0;
    for (int h = 0; h < heads; ++h) {
      size_t index = ((size_t(at) * heads + h) * length + t) * 2;
      float key = keys.data<float>()[index];
      int mark = static_cast<int>(key) - 1000 * h - 10000 * row;
      bool agrees = values.data<float>()[index] == -key &&
          keys.data<float>()[index + 1] == key + 0.5f;
      if (!agrees || (h > 0 && mark != token)) {
        return {};
      }
      token = mark;
    }
    tokens.push_back(token);
  }
  return tokens;
}

}  // namespace mlxx::cache
