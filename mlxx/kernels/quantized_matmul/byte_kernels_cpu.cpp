// Compiled once per instruction set, with MLXX_BYTE_KERNELS naming the table of
// that variant.
#include "mlxx/kernels/quantized_matmul/byte_kernels.h"

#include "mlxx/kernels/quantized_matmul/panel_bytes.h"
#include "mlxx/kernels/vector_math.h"

namespace mlxx::kernels {
namespace {

typedef int8_t Bytes __attribute__((vector_size(kWidth)));
typedef int8_t BytesAnywhere
    __attribute__((vector_size(kWidth), aligned(1), may_alias));
typedef int8_t SixteenBytes __attribute__((vector_size(16)));
typedef int8_t SixteenBytesAnywhere
    __attribute__((vector_size(16), aligned(1), may_alias));

MLXX_INLINE void even_first(int8_t* bytes) {
  const SixteenBytes order =
      {0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15};
  for (int i = 0; i < kChunk; i += 16) {
    auto* at = reinterpret_cast<SixteenBytesAnywhere*>(bytes + i);
    *at = __builtin_shuffle((SixteenBytes)*at, order);
  }
}

MLXX_INLINE void store_bytes(int8_t* at, Ints v) {
  *reinterpret_cast<BytesAnywhere*>(at) = __builtin_convertvector(v, Bytes);
}

MLXX_INLINE float sum_ints(Ints v) {
  int32_t sum = 0;
  for (int i = 0; i < kWidth; ++i) {
    sum += v[i];
  }
  return static_cast<float>(sum);
}

// Chunks whose largest number is below this are zeros: its inverse would
// overflow.
constexpr float kSmallest = 1e-30f;

template <bool kTwoBytes>
MLXX_INLINE void quantize_chunk(
    const float* x,
    ByteOrder order,
    int8_t* high,
    int8_t* low,
    float* scale,
    float* sum) {
  constexpr float kLargest = kTwoBytes ? 127 * 256 : 127;
  constexpr int kParts = kChunk / kWidth;
  Floats v[kParts];
  Floats most = {};
  Floats poison = {};  // not a number as soon as one x is none or infinite
  const Floats zero = {};
#pragma GCC unroll 8
  for (int i = 0; i < kParts; ++i) {
    v[i] = load(x + i * kWidth);
    most = larger(v[i] < zero ? -v[i] : v[i], most);
    poison = multiply_add(v[i], zero, poison);
  }
  float largest = largest_lane(most);
  *scale = largest / kLargest + sum_lanes(poison);
  Floats inverse = broadcast(largest > kSmallest ? kLargest / largest : 0.0f);
  Ints total = {};
#pragma GCC unroll 8
  for (int i = 0; i < kParts; ++i) {
    Ints n = to_nearest(v[i] * inverse);
    total += n;
    if constexpr (kTwoBytes) {
      Ints upper = (n + 128) >> 8;
      store_bytes(high + i * kWidth, upper);
      store_bytes(low + i * kWidth, n - (upper << 8));
    } else {
      store_bytes(high + i * kWidth, n);
    }
  }
  *sum = *scale * sum_ints(total);
  if (order == ByteOrder::even_first) {
    even_first(high);
    if constexpr (kTwoBytes) {
      even_first(low);
    }
  }
}

void quantize_row(
    const float* x,
    int64_t chunks,
    ByteOrder order,
    int8_t* high,
    int8_t* low,
    float* scales,
    float* sums) {
  for (int64_t c = 0; c < chunks; ++c) {
    int64_t at = c * kChunk;
    if (low) {
      quantize_chunk<true>(
          x + at,
          order,
          high + at,
          low + at,
          scales + c,
          sums + c);
    } else {
      quantize_chunk<false>(
          x + at,
          order,
          high + at,
          nullptr,
          scales + c,
          sums + c);
    }
  }
}

template <int kBits, bool kTwoBytes>
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
  Floats total[kVectors] = {};
  const std::byte* at = panel;
  for (int64_t chunk = 0; chunk < chunks;) {
    Floats scales[kVectors];
    Floats biases[kVectors];
    load_scales(layout, at, scales, biases);
    at += layout.header_bytes();
    for (int64_t end = chunk + per_group; chunk < end; ++chunk) {
      const auto* words = reinterpret_cast<const uint32_t*>(at);
      at += layout.chunk_bytes();
      Ints upper[kVectors] = {};
      Ints lower[kVectors] = {};
#pragma GCC unroll 8
      for (int i = 0; i < kWords; ++i) {
        Words a = broadcast_bytes(high + 4 * i);
        Words b = kTwoBytes ? broadcast_bytes(low + 4 * i) : a;
#pragma GCC unroll 8
        for (int v = 0; v < kVectors; ++v) {
          Words q = panel_bytes<kBits>(words, i, v);
          upper[v] = add_byte_products<kSmall>(upper[v], q, a);
          if constexpr (kTwoBytes) {
            lower[v] = add_byte_products<kSmall>(lower[v], q, b);
          }
        }
      }
      high += kChunk;
      low += kTwoBytes ? kChunk : 0;
      Floats scale = broadcast(row_scales[chunk]);
      Floats sum = broadcast(row_sums[chunk]);
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) {
        Ints n = kTwoBytes ? (upper[v] << 8) + lower[v] : upper[v];
        Floats t = multiply_add(from_ints(n), scales[v] * scale, total[v]);
        total[v] = multiply_add(biases[v], sum, t);
      }
    }
  }
  for (int v = 0; v < kVectors; ++v) {
    store(y + v * kWidth, total[v]);
  }
}

template <int kBits>
void one_row_of_form(
    const PanelLayout& layout,
    const std::byte* panel,
    const ActivationRows& activations,
    int64_t row,
    float* y) {
  if (activations.low) {
    one_row_of<kBits, true>(layout, panel, activations, row, y);
  } else {
    one_row_of<kBits, false>(layout, panel, activations, row, y);
  }
}

void one_row(
    const PanelLayout& layout,
    const std::byte* panel,
    const ActivationRows& activations,
    int64_t row,
    float* y) {
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

template <int kBits>
void unpack_chunk(const uint32_t* words, uint8_t* q) {
#pragma GCC unroll 8
  for (int i = 0; i < kWords; ++i) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      auto* to = reinterpret_cast<uint32_t*>(q) + i * kLanes + v * kWidth;
      *reinterpret_cast<WordsAnywhere*>(to) = panel_bytes<kBits>(words, i, v);
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
  for (int64_t chunk = from; chunk < to; ++chunk) {
    store_scales(layout, panel, chunk, scales, biases);
    const uint32_t* words = chunk_words(layout, panel, chunk);
    switch (layout.bits) {
      case 2:
        unpack_chunk<2>(words, q);
        break;
      case 3:
        unpack_chunk<3>(words, q);
        break;
      case 4:
        unpack_chunk<4>(words, q);
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
    scales += kLanes;
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

// Adds one chunk's products of kRows rows with two vectors of lanes.
template <int kRows, bool kSmall>
MLXX_INLINE void add_chunk(
    const uint8_t* q,
    const int8_t* bytes,
    int64_t stride,
    Ints (&sum)[kRows][2]) {
#pragma GCC unroll 8
  for (int i = 0; i < kWords; ++i) {
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

// Rows y_row .. y_row + kRows of y, which are rows row .. of the activations.
template <int kRows, bool kSmall, bool kTwoBytes>
MLXX_INLINE void
tile(const ManyRows& job, int64_t y_row, int64_t row, int lane) {
  const ActivationRows& in = job.activations;
  int64_t all = in.in / kChunk;
  Floats total[kRows][2];
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r) {
    const float* y = job.y + (y_row + r) * job.ldy + lane;
    total[r][0] = job.first ? Floats{} : load(y);
    total[r][1] = job.first ? Floats{} : load(y + kWidth);
  }
  for (int64_t chunk = 0; chunk < job.chunks; ++chunk) {
    const uint8_t* q = job.q + chunk * kChunk * kLanes + 4 * lane;
    int64_t at = row * in.in + (job.from + chunk) * kChunk;
    Ints sum[kRows][2] = {};
    add_chunk<kRows, kSmall>(q, in.high + at, in.in, sum);
    if constexpr (kTwoBytes) {
#pragma GCC unroll 6
      for (int r = 0; r < kRows; ++r) {
        sum[r][0] <<= 8;
        sum[r][1] <<= 8;
      }
      add_chunk<kRows, kSmall>(q, in.low + at, in.in, sum);
    }
    Floats s0 = load(job.scales + chunk * kLanes + lane);
    Floats s1 = load(job.scales + chunk * kLanes + lane + kWidth);
    Floats b0 = load(job.biases + chunk * kLanes + lane);
    Floats b1 = load(job.biases + chunk * kLanes + lane + kWidth);
#pragma GCC unroll 6
    for (int r = 0; r < kRows; ++r) {
      int64_t index = (row + r) * all + job.from + chunk;
      Floats scale = broadcast(in.scales[index]);
      Floats part = broadcast(in.sums[index]);
      total[r][0] = multiply_add(from_ints(sum[r][0]), s0 * scale, total[r][0]);
      total[r][1] = multiply_add(from_ints(sum[r][1]), s1 * scale, total[r][1]);
      total[r][0] = multiply_add(b0, part, total[r][0]);
      total[r][1] = multiply_add(b1, part, total[r][1]);
    }
  }
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r) {
    float* y = job.y + (y_row + r) * job.ldy + lane;
    store(y, total[r][0]);
    store(y + kWidth, total[r][1]);
  }
}

template <int kRows, bool kSmall, bool kTwoBytes>
void tiles(const ManyRows& job, int64_t y_row, int64_t row) {
  for (int lane = 0; lane < kLanes; lane += kTile) {
    tile<kRows, kSmall, kTwoBytes>(job, y_row, row, lane);
  }
}

template <bool kSmall, bool kTwoBytes>
void all_tiles(const ManyRows& job, int64_t first_row, int64_t rows) {
  int64_t done = 0;
  for (; done + kTileRows <= rows; done += kTileRows) {
    tiles<kTileRows, kSmall, kTwoBytes>(job, done, first_row + done);
  }
  switch (rows - done) {
    case 1:
      return tiles<1, kSmall, kTwoBytes>(job, done, first_row + done);
    case 2:
      return tiles<2, kSmall, kTwoBytes>(job, done, first_row + done);
#if defined(__AVX512F__) || defined(__aarch64__)
    case 3:
      return tiles<3, kSmall, kTwoBytes>(job, done, first_row + done);
    case 4:
      return tiles<4, kSmall, kTwoBytes>(job, done, first_row + done);
    case 5:
      return tiles<5, kSmall, kTwoBytes>(job, done, first_row + done);
#endif
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
  if (layout.bits < 8) {
    if (activations.low) {
      all_tiles<true, true>(job, first_row, rows);
    } else {
      all_tiles<true, false>(job, first_row, rows);
    }
  } else if (activations.low) {
    all_tiles<false, true>(job, first_row, rows);
  } else {
    all_tiles<false, false>(job, first_row, rows);
  }
}

}  // namespace

FewRows MLXX_FEW_ROWS;  // of few_rows_cpu.cpp

extern const ByteKernels MLXX_BYTE_KERNELS;
const ByteKernels MLXX_BYTE_KERNELS =
    {quantize_row, one_row, MLXX_FEW_ROWS, unpack, many_rows};

}  // namespace mlxx::kernels
