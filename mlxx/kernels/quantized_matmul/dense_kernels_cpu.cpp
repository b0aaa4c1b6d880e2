// Compiled once per instruction set, with MLXX_DENSE_KERNELS naming the table
// of that variant.
#include "mlxx/kernels/quantized_matmul/dense_kernels.h"

#include "mlxx/kernels/quantized_matmul/panel_numbers.h"
#include "mlxx/kernels/quantized_matmul/row_tiles.h"

namespace mlxx::kernels {
namespace {

// Inputs that all rows are multiplied with before the next ones: their part of
// a panel stays in the nearest cache.
constexpr int64_t kBlock = 256;

// Bytes fetched ahead of the first tile's product: farther is slower.
constexpr int kDenseAhead = 8192;

template <typename Number>
struct Block {
  const std::byte* panel;
  const Number* x;  // [rows, in]
  int64_t in;
  int64_t from;
  int64_t to;
  float* y;  // [rows][32]
};

template <int kRows, typename Number>
MLXX_INLINE void start(
    const Block<Number>& block,
    int64_t row,
    int lane,
    Floats (&total)[kRows][2]) {
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
    const float* y = block.y + (row + r) * kLanes + lane;
    total[r][0] = block.from == 0 ? Floats{} : load(y);
    total[r][1] = block.from == 0 ? Floats{} : load(y + kWidth);
  }
}

template <int kRows, typename Number>
MLXX_INLINE void finish(
    const Block<Number>& block,
    int64_t row,
    int lane,
    const Floats (&total)[kRows][2]) {
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
    float* y = block.y + (row + r) * kLanes + lane;
    store(y, total[r][0]);
    store(y + kWidth, total[r][1]);
  }
}

// Sums of half a chunk are added up.
template <NumberType kType, int kRows>
MLXX_INLINE void tile(const Block<float>& block, int64_t row, int lane) {
  constexpr int kPairBytes =
      2 * kLanes * (kType == NumberType::float32 ? 4 : 2);
  Floats total[kRows][2];
  start(block, row, lane, total);
  bool fetch = row == 0 && lane == 0;
  const float* x = block.x + row * block.in;
  for (int64_t at = block.from; at < block.to; at += kHalf) {
    Floats sum[kRows][2] = {};
#pragma GCC unroll 4
    for (int i = 0; i < kHalf; i += 2) {
      if (fetch) {
        const std::byte* next =
            block.panel + (at + i) / 2 * kPairBytes + kDenseAhead;
        __builtin_prefetch(next);
        __builtin_prefetch(next + kPairBytes / 2);
      }
      Floats w[kTileVectors][2];
      load_pair<kType>(block.panel, at + i, lane / kWidth, w[0]);
      load_pair<kType>(block.panel, at + i, lane / kWidth + 1, w[1]);
#pragma GCC unroll 2
      for (int k = 0; k < 2; ++k) {
#pragma GCC unroll 6
        for (int r = 0; r < kRows; ++r) {
          Floats in = broadcast(x[r * block.in + at + i + k]);
          sum[r][0] = multiply_add(w[0][k], in, sum[r][0]);
          sum[r][1] = multiply_add(w[1][k], in, sum[r][1]);
        }
      }
    }
#pragma GCC unroll 6
    for (int r = 0; r < kRows; ++r) {
      total[r][0] += sum[r][0];
      total[r][1] += sum[r][1];
    }
  }
  finish(block, row, lane, total);
}

template <NumberType kType>
void many_rows_of(
    const PanelLayout& layout,
    const std::byte* panel,
    const float* x,
    int64_t rows,
    float* y) {
  for (int64_t from = 0; from < layout.in; from += kBlock) {
    int64_t to = from + kBlock < layout.in ? from + kBlock : layout.in;
    Block<float> block{panel, x, layout.in, from, to, y};
    for_each_tile(rows, [&](auto count, int64_t row) {
      for (int lane = 0; lane < kLanes; lane += kTileLanes) {
        tile<kType, decltype(count)::kRows>(block, row, lane);
      }
    });
  }
}

void many_rows(
    const PanelLayout& layout,
    const std::byte* panel,
    const float* x,
    int64_t rows,
    float* y) {
  switch (layout.type) {
    case NumberType::float16:
      return many_rows_of<NumberType::float16>(layout, panel, x, rows, y);
    case NumberType::bfloat16:
      return many_rows_of<NumberType::bfloat16>(layout, panel, x, rows, y);
    default:
      return many_rows_of<NumberType::float32>(layout, panel, x, rows, y);
  }
}

#if defined(__AVX512BF16__)

// Two numbers as one, in memory that may hold anything else.
typedef uint32_t Pair __attribute__((aligned(2), may_alias));

// One sum per number of y hides the instruction's latency in twice the rows.
constexpr int kRoundedRows = 12;

template <int kRows>
MLXX_INLINE void rounded_tile(const Block<uint16_t>& block, int64_t row) {
  Floats total[kRows][2];
  start(block, row, 0, total);
  bool fetch = row == 0;
  const uint16_t* x = block.x + row * block.in;
  const auto* panel = reinterpret_cast<const uint32_t*>(block.panel);
#pragma GCC unroll 4
  for (int64_t i = block.from; i < block.to; i += 2) {
    const uint32_t* pairs = panel + i / 2 * kLanes;
    if (fetch) {
      __builtin_prefetch(reinterpret_cast<const char*>(pairs) + kDenseAhead);
      __builtin_prefetch(
          reinterpret_cast<const char*>(pairs + kWidth) + kDenseAhead);
    }
    auto w0 = (__m512bh)load_words(pairs);
    auto w1 = (__m512bh)load_words(pairs + kWidth);
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      const auto* pair = reinterpret_cast<const Pair*>(x + r * block.in + i);
      auto in = (__m512bh)(Words{} + *pair);
      total[r][0] = _mm512_dpbf16_ps(total[r][0], w0, in);
      total[r][1] = _mm512_dpbf16_ps(total[r][1], w1, in);
    }
  }
  finish(block, row, 0, total);
}

void many_rounded_rows(
    const PanelLayout& layout,
    const std::byte* panel,
    const uint16_t* x,
    int64_t rows,
    float* y) {
  for (int64_t from = 0; from < layout.in; from += kBlock) {
    int64_t to = from + kBlock < layout.in ? from + kBlock : layout.in;
    Block<uint16_t> block{panel, x, layout.in, from, to, y};
    for_each_tile<kRoundedRows>(rows, [&](auto count, int64_t row) {
      rounded_tile<decltype(count)::kRows>(block, row);
    });
  }
}

void round_row(const float* x, int64_t count, uint16_t* rounded) {
  for (int64_t i = 0; i < count; i += kWidth) {
    *reinterpret_cast<Halves*>(rounded + i) =
        (Halves)_mm512_cvtneps_pbh(load(x + i));
  }
}

#else

constexpr auto round_row = nullptr;
constexpr auto many_rounded_rows = nullptr;

#endif

}  // namespace

extern const DenseKernels MLXX_DENSE_KERNELS;
const DenseKernels MLXX_DENSE_KERNELS = {
    many_rows,
    round_row,
    many_rounded_rows};

}  // namespace mlxx::kernels
