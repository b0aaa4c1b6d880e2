#pragma once

// Cutting rows into register tiles, for sources that are compiled once per
// instruction set.
#include "mlxx/kernels/vector_lanes.h"

namespace mlxx::kernels {
namespace {

// Vectors of lanes in a register tile, and its rows at most: sums, totals and
// weights fill the registers.
constexpr int kTileVectors = 2;
constexpr int kTileLanes = kTileVectors * kWidth;
#if defined(__AVX512F__) || defined(__aarch64__)
constexpr int kTileRows = 6;
#else
constexpr int kTileRows = 3;
#endif

// A number of rows that is known when the code is compiled.
template <int kNumber>
struct Count {
  static constexpr int kRows = kNumber;
};

// Calls run(Count<rows>{}), rows from 1 to kMost.
template <int kMost = kTileRows, typename Run>
MLXX_INLINE void with_count(int64_t rows, const Run& run) {
  if constexpr (kMost > 1) {
    if (rows < kMost) {
      return with_count<kMost - 1>(rows, run);
    }
  }
  run(Count<kMost>{});
}

// Calls run(Count<n>{}, first row) for tiles of nearly equal size.
template <int kMost = kTileRows, typename Run>
MLXX_INLINE void for_each_tile(int64_t rows, const Run& run) {
  int64_t tiles = (rows + kMost - 1) / kMost;
  for (int64_t t = 0; t < tiles; ++t) {
    int64_t row = rows * t / tiles;
    with_count<kMost>(rows * (t + 1) / tiles - row, [&](auto count) {
      run(count, row);
    });
  }
}

}  // namespace
}  // namespace mlxx::kernels
