#pragma once

#include <optional>
#include <variant>
#include <vector>

#include "mlxx/core/mlx.h"

namespace mlxx::kernels {

// Tokens per block of a paged cache.
inline constexpr int kBlockTokens = 64;

// What attention reads. Lengths are host integers, so that no lazy graph can
// grow in bookkeeping. More forms (quantized, latent...) join the variant as
// their caches are built.
struct DenseView {
  mx::array keys;    // [B, K, S, D]
  mx::array values;  // [B, K, S, D]
};

// One pool of fixed-size blocks shared by many rows. Block b of row r is
// pool index table[r][b]; row r holds lengths[r] tokens.
struct BlocksView {
  mx::array keys;    // [blocks, K, kBlockTokens, D]
  mx::array values;  // [blocks, K, kBlockTokens, D]
  std::vector<std::vector<int>> table;
  std::vector<int> lengths;
};

// Rows of different lengths that are one batch for this call only, each with
// arrays of its own, [1, K, S, D].
struct RowsView {
  struct Row {
    DenseView tokens;
    // Which of them its queries may see; absent: all. Broadcasts to [H, L, S].
    std::optional<mx::array> mask;
  };
  std::vector<Row> rows;
};

using KVView = std::variant<DenseView, BlocksView, RowsView>;

// The dense layout of one row of a BlocksView: [1, K, lengths[row], D] each.
DenseView gather_row(const BlocksView& view, int row);

}  // namespace mlxx::kernels
