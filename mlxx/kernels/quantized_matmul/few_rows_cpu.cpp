// Compiled once per instruction set, with MLXX_FEW_ROWS naming the function of
// that variant.
#include "mlxx/kernels/quantized_matmul/byte_kernels.h"
#include "mlxx/kernels/quantized_matmul/panel_bytes.h"

namespace mlxx::kernels {
namespace {

// Rows that are computed together straight from the panel.
#if defined(__AVX512F__) || defined(__aarch64__)
constexpr int kFewRows = 8;
#else
constexpr int kFewRows = 4;
#endif

// Adds the products of a chunk's words with one byte of each number of kRows
// rows: one byte at a time, since there are not enough registers for the
// addresses of both.
template <int kBits, int kRows>
MLXX_INLINE void add_words(
    const uint32_t* words,
    int v,
    const int8_t* bytes,
    int64_t stride,
    Ints (&sum)[kRows]) {
  const int8_t* rows[kRows];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    rows[r] = bytes + r * stride;
  }
#pragma GCC unroll 8
  for (int i = 0; i < kWords; ++i) {
    Words q = panel_bytes<kBits>(words, i, v);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      sum[r] = add_byte_products<(kBits < 8)>(
          sum[r],
          q,
          broadcast_bytes(rows[r] + 4 * i));
    }
  }
}

// kRows rows from `row` on, in the order of one_row_of.
template <int kBits, bool kTwoBytes, int kRows>
MLXX_INLINE void few_rows_of(
    const PanelLayout& layout,
    const std::byte* panel,
    const ActivationRows& in,
    int64_t row,
    float* y) {
  int64_t chunks = layout.chunks();
  int per_group = layout.chunks_per_group();
  for (int v = 0; v < kVectors; ++v) {
    Floats total[kRows] = {};
    const std::byte* at = panel;
    for (int64_t chunk = 0; chunk < chunks;) {
      Floats scales[kVectors];
      Floats biases[kVectors];
      load_scales(layout, at, scales, biases);
      at += layout.header_bytes();
      for (int64_t end = chunk + per_group; chunk < end; ++chunk) {
        const auto* words = reinterpret_cast<const uint32_t*>(at);
        at += layout.chunk_bytes();
        int64_t first = row * in.in + chunk * kChunk;
        if (v == 0) {
          fetch_ahead(at, layout.chunk_bytes());
        }
        Ints sum[kRows] = {};
        add_words<kBits, kRows>(words, v, in.high + first, in.in, sum);
        if constexpr (kTwoBytes) {
#pragma GCC unroll 8
          for (int r = 0; r < kRows; ++r) {
            sum[r] <<= 8;
          }
          add_words<kBits, kRows>(words, v, in.low + first, in.in, sum);
        }
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r) {
          int64_t index = (row + r) * chunks + chunk;
          Floats scale = scales[v] * broadcast(in.scales[index]);
          total[r] = multiply_add(from_ints(sum[r]), scale, total[r]);
          total[r] =
              multiply_add(biases[v], broadcast(in.sums[index]), total[r]);
        }
      }
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      store(y + r * kLanes + v * kWidth, total[r]);
    }
  }
}

template <int kBits, bool kTwoBytes>
void few_rows_of_form(
    const PanelLayout& layout,
    const std::byte* panel,
    const ActivationRows& in,
    int64_t row,
    int64_t rows,
    float* y) {
  switch (rows) {
    case 1:
      return few_rows_of<kBits, kTwoBytes, 1>(layout, panel, in, row, y);
    case 2:
      return few_rows_of<kBits, kTwoBytes, 2>(layout, panel, in, row, y);
    case 3:
      return few_rows_of<kBits, kTwoBytes, 3>(layout, panel, in, row, y);
    case 4:
      return few_rows_of<kBits, kTwoBytes, 4>(layout, panel, in, row, y);
#if defined(__AVX512F__) || defined(__aarch64__)
    case 5:
      return few_rows_of<kBits, kTwoBytes, 5>(layout, panel, in, row, y);
    case 6:
      return few_rows_of<kBits, kTwoBytes, 6>(layout, panel, in, row, y);
    case 7:
      return few_rows_of<kBits, kTwoBytes, 7>(layout, panel, in, row, y);
    case 8:
      return few_rows_of<kBits, kTwoBytes, 8>(layout, panel, in, row, y);
#endif
  }
}

// In tiles of nearly equal size.
template <int kBits>
void few_rows_of_bits(
    const PanelLayout& layout,
    const std::byte* panel,
    const ActivationRows& in,
    float* y) {
  int64_t tiles = (in.rows + kFewRows - 1) / kFewRows;
  for (int64_t t = 0; t < tiles; ++t) {
    int64_t row = in.rows * t / tiles;
    int64_t rows = in.rows * (t + 1) / tiles - row;
    float* to = y + row * kLanes;
    if (in.low) {
      few_rows_of_form<kBits, true>(layout, panel, in, row, rows, to);
    } else {
      few_rows_of_form<kBits, false>(layout, panel, in, row, rows, to);
    }
  }
}

}  // namespace

FewRows MLXX_FEW_ROWS;

bool MLXX_FEW_ROWS(
    const PanelLayout& layout,
    const std::byte* panel,
    const ActivationRows& activations,
    float* y) {
  if (layout.codes != Codes::integers) {
    return false;
  }
  switch (layout.bits) {
    case 4:
      few_rows_of_bits<4>(layout, panel, activations, y);
      return true;
    case 8:
      few_rows_of_bits<8>(layout, panel, activations, y);
      return true;
  }
  return false;
}

}  // namespace mlxx::kernels
