// Compiled once per instruction set, with MLXX_GEMM_KERNELS naming the table of
// that variant.
#include "mlxx/kernels/matmul/gemm_kernels.h"
#include "mlxx/kernels/quantized_matmul/panel_numbers.h"

namespace mlxx::kernels {
namespace {

// Sums of a tile, one row of weights and one number fill the registers.
#if defined(__AVX512F__)
constexpr int kTileRows = 12;
constexpr int kTileVectors = 2;
#elif defined(__aarch64__)
constexpr int kTileRows = 6;
constexpr int kTileVectors = 4;
#else
constexpr int kTileRows = 6;
constexpr int kTileVectors = 2;
#endif
constexpr int64_t kPiece = kTileRows * kGemmDepth;

// As load_number(), and infinite or no numbers stay what they are.
template <NumberType kType>
MLXX_INLINE Floats load_any(const void* at) {
  if constexpr (kType == NumberType::float32) {
    return load(static_cast<const float*>(at));
  }
  const auto* halves = static_cast<const uint16_t*>(at);
  if constexpr (kType == NumberType::bfloat16) {
    return load_bfloat16(halves);
  }
#if defined(__AVX2__)
  return load_float16(halves);
#else
  Words value = (Words)load_float16(halves);
  Words size = value & 0x7fffffffu;
  return (Floats)(size >= 0x47800000u ? value | 0x7f800000u : value);
#endif
}

template <NumberType kType>
MLXX_INLINE const char* number_at(const void* data, int64_t index) {
  return static_cast<const char*>(data) +
      index * (kType == NumberType::float32 ? 4 : 2);
}

// The first `count` numbers of a vector, the rest zero.
template <NumberType kType>
MLXX_INLINE Floats load_some(const void* at, int64_t count) {
  alignas(64) char room[4 * kWidth] = {};
  int64_t bytes = count * (kType == NumberType::float32 ? 4 : 2);
  __builtin_memcpy(room, at, static_cast<size_t>(bytes));
  return load_any<kType>(room);
}

// Numbers that are adjacent.
template <NumberType kType>
MLXX_INLINE void copy_numbers(const void* from, int64_t count, float* to) {
  int64_t i = 0;
  for (; i + kWidth <= count; i += kWidth) {
    store(to + i, load_any<kType>(number_at<kType>(from, i)));
  }
  if (i < count) {
    Floats last = load_some<kType>(number_at<kType>(from, i), count - i);
    for (int64_t j = i; j < count; ++j) {
      to[j] = last[j - i];
    }
  }
}

// Swaps element e of row i with element i of row e, for blocks of kStep.
template <int kStep>
MLXX_INLINE void transpose_step(Floats (&rows)[kWidth]) {
  Words low;
  Words high;
#pragma GCC unroll 16
  for (uint32_t e = 0; e < kWidth; ++e) {
    low[e] = e & kStep ? kWidth + e - kStep : e;
    high[e] = e & kStep ? kWidth + e : e + kStep;
  }
#pragma GCC unroll 16
  for (int i = 0; i < kWidth; ++i) {
    if (!(i & kStep)) {
      Floats a = rows[i];
      Floats b = rows[i + kStep];
#if defined(__AVX512F__)
      rows[i] = _mm512_permutex2var_ps(a, (__m512i)low, b);
      rows[i + kStep] = _mm512_permutex2var_ps(a, (__m512i)high, b);
#else
      rows[i] = __builtin_shuffle(a, b, (Ints)low);
      rows[i + kStep] = __builtin_shuffle(a, b, (Ints)high);
#endif
    }
  }
}

MLXX_INLINE void transpose(Floats (&rows)[kWidth]) {
  transpose_step<1>(rows);
  transpose_step<2>(rows);
  if constexpr (kWidth > 4) {
    transpose_step<4>(rows);
  }
  if constexpr (kWidth > 8) {
    transpose_step<8>(rows);
  }
}

// `rows` numbers of each of `depth` rows of memory, `stride` apart, in pieces.
template <NumberType kType>
void copy_tile_rows(
    const char* from,
    int64_t stride,
    int64_t rows,
    int64_t depth,
    float* to) {
  constexpr int kVectors = (kTileRows + kWidth - 1) / kWidth;
  for (int64_t k = 0; k < depth; ++k) {
    const char* row = number_at<kType>(from, k * stride);
    float* at = to + k * kTileRows;
    int64_t r = 0;
    // Writes too much, which the next k covers.
    int64_t end = k + 1 < depth ? rows - kVectors * kWidth : -1;
    for (; r <= end; r += kTileRows, at += kPiece) {
      for (int v = 0; v < kVectors; ++v) {
        store(
            at + v * kWidth,
            load_any<kType>(number_at<kType>(row, r + v * kWidth)));
      }
    }
    for (; r < rows; r += kTileRows, at += kPiece) {
      copy_numbers<kType>(
          number_at<kType>(row, r),
          rows - r < kTileRows ? rows - r : int64_t{kTileRows},
          at);
    }
  }
}

template <NumberType kType>
void pack_left_of(const GemmOperand& a, const GemmRegion& at, float* to) {
  int64_t first = at.row * a.row_stride + at.column * a.column_stride;
  if (a.column_stride != 1) {
    return copy_tile_rows<kType>(
        number_at<kType>(a.data, first),
        a.column_stride,
        at.rows,
        at.columns,
        to);
  }
  for (int64_t row = 0; row < at.rows; ++row) {
    copy_numbers<kType>(
        number_at<kType>(a.data, first + row * a.row_stride),
        at.columns,
        to + row / kTileRows * kPiece + row % kTileRows * kGemmDepth);
  }
}

template <NumberType kType>
void pack_right_of(const GemmOperand& b, const GemmRegion& at, float* to) {
  int64_t first = at.row * b.row_stride + at.column * b.column_stride;
  if (b.column_stride == 1) {
    for (int64_t k = 0; k < at.rows; ++k, to += kGemmLanes) {
      const char* from = number_at<kType>(b.data, first + k * b.row_stride);
      copy_numbers<kType>(from, at.columns, to);
      for (int64_t j = at.columns; j < kGemmLanes; ++j) {
        to[j] = 0;
      }
    }
    return;
  }
  // Rows are adjacent: squares of kWidth, transposed.
  for (int64_t k = 0; k < at.rows; k += kWidth) {
    int64_t count = at.rows - k < kWidth ? at.rows - k : int64_t{kWidth};
    for (int64_t lane = 0; lane < kGemmLanes; lane += kWidth) {
      Floats square[kWidth];
#pragma GCC unroll 16
      for (int i = 0; i < kWidth; ++i) {
        const char* from =
            number_at<kType>(b.data, first + k + (lane + i) * b.column_stride);
        square[i] = lane + i >= at.columns ? Floats{}
            : count == kWidth              ? load_any<kType>(from)
                                           : load_some<kType>(from, count);
      }
      transpose(square);
      for (int64_t i = 0; i < count; ++i) {
        store(to + (k + i) * kGemmLanes + lane, square[i]);
      }
    }
  }
}

void pack_left(const GemmOperand& a, const GemmRegion& at, float* to) {
  switch (a.type) {
    case NumberType::float16:
      return pack_left_of<NumberType::float16>(a, at, to);
    case NumberType::bfloat16:
      return pack_left_of<NumberType::bfloat16>(a, at, to);
    default:
      return pack_left_of<NumberType::float32>(a, at, to);
  }
}

void pack_right(const GemmOperand& b, const GemmRegion& at, float* to) {
  switch (b.type) {
    case NumberType::float16:
      return pack_right_of<NumberType::float16>(b, at, to);
    case NumberType::bfloat16:
      return pack_right_of<NumberType::bfloat16>(b, at, to);
    default:
      return pack_right_of<NumberType::float32>(b, at, to);
  }
}

void dequantize_chunks(
    const float* q,
    const float* scales,
    const float* biases,
    int64_t chunks,
    float* to,
    int64_t stride) {
  for (int64_t chunk = 0; chunk < chunks; ++chunk, to += stride) {
    for (int lane = 0; lane < kLanes; lane += kWidth) {
      Floats bias = load(biases + lane);
      for (int at = 0; at < kChunk; at += kWidth) {
        Floats scale = load(scales + (at < kHalf ? 0 : kLanes) + lane);
        Floats square[kWidth];
#pragma GCC unroll 16
        for (int i = 0; i < kWidth; ++i) {
          square[i] =
              multiply_add(load(q + (at + i) * kLanes + lane), scale, bias);
        }
        transpose(square);
#pragma GCC unroll 16
        for (int i = 0; i < kWidth; ++i) {
          store(to + (lane + i) * kChunk + at, square[i]);
        }
      }
    }
    q += kChunk * kLanes;
    scales += 2 * kLanes;
    biases += kLanes;
  }
}

// Rows of one piece, kVectors vectors of columns.
template <int kRows, int kVectors, bool kByRows>
MLXX_INLINE void tile(
    const GemmTiles& job,
    const float* left,
    const float* right,
    bool first,
    float* y,
    int64_t ldy) {
  Floats sum[kRows][kVectors] = {};
  for (int64_t k = 0; k < job.depth; ++k) {
    Floats w[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      w[v] = load(right + k * job.ldr + v * kWidth);
    }
#pragma GCC unroll 12
    for (int r = 0; r < kRows; ++r) {
      Floats in = broadcast(
          kByRows ? left[r * kGemmDepth + k] : left[k * kTileRows + r]);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        sum[r][v] = multiply_add(w[v], in, sum[r][v]);
      }
    }
  }
#pragma GCC unroll 12
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      float* at = y + r * ldy + v * kWidth;
      store(at, first ? sum[r][v] : load(at) + sum[r][v]);
    }
  }
}

// One vector of columns of which some are past the last.
template <int kRows, bool kByRows>
MLXX_INLINE void last_columns(
    const GemmTiles& job,
    const float* left,
    const float* right,
    int64_t columns,
    float* y) {
  float room[kRows * kWidth];
  tile<kRows, 1, kByRows>(job, left, right, true, room, kWidth);
  for (int r = 0; r < kRows; ++r) {
    for (int64_t j = 0; j < columns; ++j) {
      float* at = y + r * job.ldy + j;
      *at = job.first ? room[r * kWidth + j] : *at + room[r * kWidth + j];
    }
  }
}

template <int kRows, bool kByRows>
void tiles(const GemmTiles& job, const float* left, float* y) {
  int64_t lane = 0;
  for (; lane + kTileVectors * kWidth <= job.lanes;
       lane += kTileVectors * kWidth) {
    tile<kRows, kTileVectors, kByRows>(
        job,
        left,
        job.right + lane,
        job.first,
        y + lane,
        job.ldy);
  }
  for (; lane + kWidth <= job.lanes; lane += kWidth) {
    tile<kRows, 1, kByRows>(
        job,
        left,
        job.right + lane,
        job.first,
        y + lane,
        job.ldy);
  }
  if (lane < job.lanes) {
    last_columns<kRows, kByRows>(
        job,
        left,
        job.right + lane,
        job.lanes - lane,
        y + lane);
  }
}

template <int kRows, bool kByRows>
void last_rows(
    const GemmTiles& job,
    int64_t rows,
    const float* left,
    float* y) {
  if (rows == kRows) {
    return tiles<kRows, kByRows>(job, left, y);
  }
  if constexpr (kRows > 1) {
    last_rows<kRows - 1, kByRows>(job, rows, left, y);
  }
}

template <bool kByRows>
void multiply_layout(const GemmTiles& job) {
  const float* left = job.left;
  float* y = job.y;
  int64_t row = 0;
  for (; row + kTileRows <= job.rows; row += kTileRows) {
    tiles<kTileRows, kByRows>(job, left, y);
    left += kPiece;
    y += kTileRows * job.ldy;
  }
  if (row < job.rows) {
    last_rows<kTileRows - 1, kByRows>(job, job.rows - row, left, y);
  }
}

void multiply(const GemmTiles& job) {
  if (job.left_by_rows) {
    multiply_layout<true>(job);
  } else {
    multiply_layout<false>(job);
  }
}

MLXX_INLINE void store_words_as_halves(uint16_t* to, Words v) {
  // GCC 12 narrows a whole vector in pieces unless told how.
#if defined(__AVX512F__)
  _mm256_storeu_si256(
      reinterpret_cast<__m256i*>(to),
      _mm512_maskz_cvtepi32_epi16(0xffff, (__m512i)v));
#else
  *reinterpret_cast<Halves*>(to) = __builtin_convertvector(v, Halves);
#endif
}

MLXX_INLINE void round_to_bfloat16(uint16_t* to, Floats v) {
  Words bits = (Words)v;
  Words nearest = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  Words quiet = (bits >> 16) | 0x40u;  // not a number
  store_words_as_halves(
      to,
      (bits & 0x7fffffffu) > 0x7f800000u ? quiet : nearest);
}

MLXX_INLINE void round_to_float16(uint16_t* to, Floats v) {
#if defined(__AVX512F__)
  _mm256_storeu_si256(
      reinterpret_cast<__m256i*>(to),
      _mm512_maskz_cvtps_ph(0xffff, v, _MM_FROUND_TO_NEAREST_INT));
#elif defined(__AVX2__)
  _mm_storeu_si128(
      reinterpret_cast<__m128i*>(to),
      _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
#else
  Words sign = ((Words)v >> 16) & 0x8000u;
  Words bits = (Words)v & 0x7fffffffu;
  // Adding a power of two leaves what a subnormal half holds in the low bits.
  Words small = (Words)((Floats)bits + broadcast(0.5f)) - 0x3f000000u;
  Words normal = (bits + 0x0fffu + ((bits >> 13) & 1u) - 0x38000000u) >> 13;
  Words half = bits < 0x38800000u ? small : normal;
  half = bits >= 0x477ff000u ? Words{} + 0x7c00u : half;
  half = bits > 0x7f800000u ? Words{} + 0x7e00u : half;
  store_words_as_halves(to, half | sign);
#endif
}

template <NumberType kType>
MLXX_INLINE void store_rounded(uint16_t* to, Floats v) {
  if constexpr (kType == NumberType::bfloat16) {
    round_to_bfloat16(to, v);
  } else {
    round_to_float16(to, v);
  }
}

template <NumberType kType>
void round_of(const float* from, int64_t count, uint16_t* to) {
  int64_t i = 0;
  for (; i + kWidth <= count; i += kWidth) {
    store_rounded<kType>(to + i, load(from + i));
  }
  if (i < count) {
    uint16_t room[kWidth];
    store_rounded<kType>(
        room,
        load_some<NumberType::float32>(from + i, count - i));
    for (int64_t j = i; j < count; ++j) {
      to[j] = room[j - i];
    }
  }
}

void round(const float* from, int64_t count, NumberType type, void* to) {
  auto* halves = static_cast<uint16_t*>(to);
  if (type == NumberType::bfloat16) {
    round_of<NumberType::bfloat16>(from, count, halves);
  } else {
    round_of<NumberType::float16>(from, count, halves);
  }
}

}  // namespace

extern const GemmKernels MLXX_GEMM_KERNELS;
const GemmKernels MLXX_GEMM_KERNELS =
    {kTileRows, pack_left, pack_right, dequantize_chunks, multiply, round};

}  // namespace mlxx::kernels
