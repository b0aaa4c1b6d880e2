// Compiled once per instruction set, with MLXX_BYTE_KERNELS naming the table of
// that variant.
#include "mlxx/kernels/quantized_matmul/byte_kernels.h"

#include "mlxx/kernels/quantized_matmul/panel_bytes.h"
#include "mlxx/kernels/quantized_matmul/row_rounding.h"

namespace mlxx::kernels {
namespace {

// How a chunk's integers become numbers.
enum class Sums {
  biased,  // one scale, and a bias
  whole,   // of E2M1 codes with one scale
  halves,  // of E2M1 codes with a scale for each half
};

// What the 12 in each E2M1 byte adds to the products of a whole chunk, or of
// half `part` of it.
template <Sums kSums>
MLXX_INLINE Ints e2m1_excess(const int32_t* half_sums, int part) {
  auto sum = static_cast<uint32_t>(half_sums[part]);
  if constexpr (kSums == Sums::whole) {
    sum += static_cast<uint32_t>(half_sums[1]);
  }
  return (Ints)(Words{} + 12u * sum);
}

template <int kBits, Sums kSums, bool kTwoBytes>
MLXX_INLINE void one_row_of(
    const PanelLayout& layout,
    const std::byte* panel,
    const ActivationRows& activations,
    int64_t row,
    float* y) {
  constexpr bool kSmall = kBits < 8;
  int64_t chunks = layout.chunks();
  int per_group = layout.chunks_per_group();
  const int8_t* high = activations.high + row * layout.in;
  const int8_t* low = kTwoBytes ? activations.low + row * layout.in : nullptr;
  const float* row_scales = activations.scales + row * chunks;
  const float* row_sums = activations.sums + row * chunks;
  constexpr int kParts = kSums == Sums::halves ? 2 : 1;
  const int32_t* half_sums = kSums == Sums::biased
      ? nullptr
      : activations.half_sums + 2 * row * chunks;
  Floats total[kVectors] = {};
  const std::byte* at = panel;
  for (int64_t chunk = 0; chunk < chunks;) {
    Floats scales[kVectors];
    Floats biases[kVectors];
    load_scales(layout, at, scales, biases);
    Floats part_scales[kParts][kVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      part_scales[0][v] = kSums == Sums::biased ? scales[v] : scales[v] * 0.5f;
      if constexpr (kParts == 2) {
        part_scales[1][v] =
            load_number(second_scales(layout, at), layout.type, v) * 0.5f;
      }
    }
    at += layout.header_bytes();
    for (int64_t end = chunk + per_group; chunk < end; ++chunk) {
      const auto* words = reinterpret_cast<const uint32_t*>(at);
      at += layout.chunk_bytes();
      fetch_ahead(at, layout.chunk_bytes());
      Floats scale = broadcast(row_scales[chunk]);
      Floats sum = broadcast(row_sums[chunk]);
#pragma GCC unroll 2
      for (int part = 0; part < kParts; ++part) {
        Ints upper[kVectors] = {};
        Ints lower[kVectors] = {};
#pragma GCC unroll 8
        for (int w = 0; w < kWords / kParts; ++w) {
          int i = part * (kWords / kParts) + w;
          Words a = broadcast_bytes(high + 4 * i);
          Words b = kTwoBytes ? broadcast_bytes(low + 4 * i) : a;
#pragma GCC unroll 8
          for (int v = 0; v < kVectors; ++v) {
            Words q = panel_bytes<kBits>(words, i, v);
            if constexpr (kSums != Sums::biased) {
              q = e2m1_bytes(q);
            }
            upper[v] = add_byte_products<kSmall>(upper[v], q, a);
            if constexpr (kTwoBytes) {
              lower[v] = add_byte_products<kSmall>(lower[v], q, b);
            }
          }
        }
#pragma GCC unroll 8
        for (int v = 0; v < kVectors; ++v) {
          Ints n = kTwoBytes ? (upper[v] << 8) + lower[v] : upper[v];
          if constexpr (kSums != Sums::biased) {
            n -= e2m1_excess<kSums>(half_sums + 2 * chunk, part);
          }
          Floats s = part_scales[part][v] * scale;
          total[v] = multiply_add(from_ints(n), s, total[v]);
          if constexpr (kSums == Sums::biased) {
            total[v] = multiply_add(biases[v], sum, total[v]);
          }
        }
      }
      high += kChunk;
      low += kTwoBytes ? kChunk : 0;
    }
  }
  for (int v = 0; v < kVectors; ++v) {
    store(y + v * kWidth, total[v]);
  }
}

template <int kBits, Sums kSums = Sums::biased>
void one_row_of_form(
    const PanelLayout& layout,
    const std::byte* panel,
    const ActivationRows& activations,
    int64_t row,
    float* y) {
  if (activations.low) {
    one_row_of<kBits, kSums, true>(layout, panel, activations, row, y);
  } else {
    one_row_of<kBits, kSums, false>(layout, panel, activations, row, y);
  }
}

void one_row(
    const PanelLayout& layout,
    const std::byte* panel,
    const ActivationRows& activations,
    int64_t row,
    float* y) {
  if (layout.codes == Codes::e2m1) {
    return layout.half_groups
        ? one_row_of_form<4, Sums::halves>(layout, panel, activations, row, y)
        : one_row_of_form<4, Sums::whole>(layout, panel, activations, row, y);
  }
  switch (layout.bits) {
    case 2:
      return one_row_of_form<2>(layout, panel, activations, row, y);
    case 3:
      return one_row_of_form<3>(layout, panel, activations, row, y);
    case 4:
      return one_row_of_form<4>(layout, panel, activations, row, y);
    case 5:
      return one_row_of_form<5>(layout, panel, activations, row, y);
    case 6:
      return one_row_of_form<6>(layout, panel, activations, row, y);
    case 8:
      return one_row_of_form<8>(layout, panel, activations, row, y);
  }
}

template <int kBits, bool kE2m1 = false>
void unpack_chunk(const uint32_t* words, uint8_t* q) {
#pragma GCC unroll 8
  for (int i = 0; i < kWords; ++i) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      auto* to = reinterpret_cast<uint32_t*>(q) + i * kLanes + v * kWidth;
      Words bytes = panel_bytes<kBits>(words, i, v);
      *reinterpret_cast<WordsAnywhere*>(to) = kE2m1 ? e2m1_bytes(bytes) : bytes;
    }
  }
}

void unpack(
    const PanelLayout& layout,
    const std::byte* panel,
    int64_t from,
    int64_t to,
    uint8_t* q,
    float* scales,
    float* biases) {
  int halves = layout.half_groups ? 2 : 1;
  for (int64_t chunk = from; chunk < to; ++chunk) {
    store_scales(layout, panel, chunk, halves, scales, biases);
    const uint32_t* words = chunk_words(layout, panel, chunk);
    if (layout.codes == Codes::e2m1) {
      for (int i = 0; i < halves * kLanes; i += kWidth) {
        store(scales + i, load(scales + i) * 0.5f);
      }
    }
    switch (layout.bits) {
      case 2:
        unpack_chunk<2>(words, q);
        break;
      case 3:
        unpack_chunk<3>(words, q);
        break;
      case 4:
        if (layout.codes == Codes::e2m1) {
          unpack_chunk<4, true>(words, q);
        } else {
          unpack_chunk<4>(words, q);
        }
        break;
      case 5:
        unpack_chunk<5>(words, q);
        break;
      case 6:
        unpack_chunk<6>(words, q);
        break;
      case 8:
        unpack_chunk<8>(words, q);
        break;
    }
    q += kChunk * kLanes;
    scales += halves * kLanes;
    biases += kLanes;
  }
}

// Lanes of a register tile: two vectors.
constexpr int kTile = 2 * kWidth;
#if defined(__AVX512F__) || defined(__aarch64__)
constexpr int kTileRows = 6;
#else
constexpr int kTileRows = 3;
#endif

struct ManyRows {
  const uint8_t* q;
  const float* scales;
  const float* biases;
  int64_t from;
  int64_t chunks;
  const ActivationRows& activations;
  bool first;
  float* y;
  int64_t ldy;
};

// Adds the products of words [kFrom, kTo) of a chunk of kRows rows with two
// vectors of lanes.
template <int kRows, bool kSmall, int kFrom, int kTo>
MLXX_INLINE void add_chunk(
    const uint8_t* q,
    const int8_t* bytes,
    int64_t stride,
    Ints (&sum)[kRows][2]) {
#pragma GCC unroll 8
  for (int i = kFrom; i < kTo; ++i) {
    const auto* words = reinterpret_cast<const uint32_t*>(q) + i * kLanes;
    Words w0 = load_words(words);
    Words w1 = load_words(words + kWidth);
#pragma GCC unroll 6
    for (int r = 0; r < kRows; ++r) {
      Words a = broadcast_bytes(bytes + r * stride + 4 * i);
      sum[r][0] = add_byte_products<kSmall>(sum[r][0], w0, a);
      sum[r][1] = add_byte_products<kSmall>(sum[r][1], w1, a);
    }
  }
}

// Adds to the totals what part kPart of a chunk gives: half of it, or all.
template <int kRows, Sums kSums, bool kSmall, bool kTwoBytes, int kPart>
MLXX_INLINE void add_part(
    const ManyRows& job,
    int64_t chunk,
    int64_t row,
    int lane,
    Floats (&total)[kRows][2]) {
  constexpr int kParts = kSums == Sums::halves ? 2 : 1;
  constexpr int kFrom = kPart * kWords / kParts;
  constexpr int kTo = kFrom + kWords / kParts;
  const ActivationRows& in = job.activations;
  int64_t all = in.in / kChunk;
  const uint8_t* q = job.q + chunk * kChunk * kLanes + 4 * lane;
  int64_t at = row * in.in + (job.from + chunk) * kChunk;
  Ints sum[kRows][2] = {};
  add_chunk<kRows, kSmall, kFrom, kTo>(q, in.high + at, in.in, sum);
  if constexpr (kTwoBytes) {
#pragma GCC unroll 6
    for (int r = 0; r < kRows; ++r) {
      sum[r][0] <<= 8;
      sum[r][1] <<= 8;
    }
    add_chunk<kRows, kSmall, kFrom, kTo>(q, in.low + at, in.in, sum);
  }
  const float* scales = job.scales + (kParts * chunk + kPart) * kLanes + lane;
  Floats s0 = load(scales);
  Floats s1 = load(scales + kWidth);
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r) {
    int64_t index = (row + r) * all + job.from + chunk;
    Floats scale = broadcast(in.scales[index]);
    if constexpr (kSums != Sums::biased) {
      Ints excess = e2m1_excess<kSums>(in.half_sums + 2 * index, kPart);
      sum[r][0] -= excess;
      sum[r][1] -= excess;
    }
    total[r][0] = multiply_add(from_ints(sum[r][0]), s0 * scale, total[r][0]);
    total[r][1] = multiply_add(from_ints(sum[r][1]), s1 * scale, total[r][1]);
  }
  if constexpr (kSums == Sums::biased) {
    Floats b0 = load(job.biases + chunk * kLanes + lane);
    Floats b1 = load(job.biases + chunk * kLanes + lane + kWidth);
#pragma GCC unroll 6
    for (int r = 0; r < kRows; ++r) {
      Floats x = broadcast(in.sums[(row + r) * all + job.from + chunk]);
      total[r][0] = multiply_add(b0, x, total[r][0]);
      total[r][1] = multiply_add(b1, x, total[r][1]);
    }
  }
}

// Rows y_row .. y_row + kRows of y, which are rows row .. of the activations.
template <int kRows, Sums kSums, bool kSmall, bool kTwoBytes>
MLXX_INLINE void
tile(const ManyRows& job, int64_t y_row, int64_t row, int lane) {
  Floats total[kRows][2];
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r) {
    const float* y = job.y + (y_row + r) * job.ldy + lane;
    total[r][0] = job.first ? Floats{} : load(y);
    total[r][1] = job.first ? Floats{} : load(y + kWidth);
  }
  for (int64_t chunk = 0; chunk < job.chunks; ++chunk) {
    add_part<kRows, kSums, kSmall, kTwoBytes, 0>(job, chunk, row, lane, total);
    if constexpr (kSums == Sums::halves) {
      add_part<kRows, kSums, kSmall, kTwoBytes, 1>(
          job,
          chunk,
          row,
          lane,
          total);
    }
  }
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r) {
    float* y = job.y + (y_row + r) * job.ldy + lane;
    store(y, total[r][0]);
    store(y + kWidth, total[r][1]);
  }
}

template <int kRows, Sums kSums, bool kSmall, bool kTwoBytes>
void tiles(const ManyRows& job, int64_t y_row, int64_t row) {
  for (int lane = 0; lane < kLanes; lane += kTile) {
    tile<kRows, kSums, kSmall, kTwoBytes>(job, y_row, row, lane);
  }
}

template <Sums kSums, bool kSmall, bool kTwoBytes>
void all_tiles(const ManyRows& job, int64_t first_row, int64_t rows) {
  int64_t done = 0;
  for (; done + kTileRows <= rows; done += kTileRows) {
    tiles<kTileRows, kSums, kSmall, kTwoBytes>(job, done, first_row + done);
  }
  switch (rows - done) {
    case 1:
      return tiles<1, kSums, kSmall, kTwoBytes>(job, done, first_row + done);
    case 2:
      return tiles<2, kSums, kSmall, kTwoBytes>(job, done, first_row + done);
#if defined(__AVX512F__) || defined(__aarch64__)
    case 3:
      return tiles<3, kSums, kSmall, kTwoBytes>(job, done, first_row + done);
    case 4:
      return tiles<4, kSums, kSmall, kTwoBytes>(job, done, first_row + done);
    case 5:
      return tiles<5, kSums, kSmall, kTwoBytes>(job, done, first_row + done);
#endif
  }
}

template <Sums kSums, bool kSmall>
void rows_of(const ManyRows& job, int64_t first_row, int64_t rows) {
  if (job.activations.low) {
    all_tiles<kSums, kSmall, true>(job, first_row, rows);
  } else {
    all_tiles<kSums, kSmall, false>(job, first_row, rows);
  }
}

void many_rows(
    const PanelLayout& layout,
    const uint8_t* q,
    const float* scales,
    const float* biases,
    int64_t from,
    int64_t chunks,
    const ActivationRows& activations,
    int64_t first_row,
    int64_t rows,
    bool first,
    float* y,
    int64_t ldy) {
  ManyRows job{q, scales, biases, from, chunks, activations, first, y, ldy};
  if (layout.codes == Codes::e2m1) {
    return layout.half_groups
        ? rows_of<Sums::halves, true>(job, first_row, rows)
        : rows_of<Sums::whole, true>(job, first_row, rows);
  }
  if (layout.bits < 8) {
    return rows_of<Sums::biased, true>(job, first_row, rows);
  }
  rows_of<Sums::biased, false>(job, first_row, rows);
}

}  // namespace

FewRows MLXX_FEW_ROWS;  // of few_rows_cpu.cpp

extern const ByteKernels MLXX_BYTE_KERNELS;
const ByteKernels MLXX_BYTE_KERNELS =
    {quantize_row, one_row, MLXX_FEW_ROWS, unpack, many_rows};

}  // namespace mlxx::kernels
