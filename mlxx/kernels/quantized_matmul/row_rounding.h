#pragma once

// Rounding rows of activations to integers, for sources that are compiled once
// per instruction set.
#include "mlxx/kernels/integer_lanes.h"
#include "mlxx/kernels/quantized_matmul/byte_kernels.h"
#include "mlxx/kernels/vector_math.h"

namespace mlxx::kernels {
namespace {

typedef int8_t Bytes __attribute__((vector_size(kWidth)));
typedef int8_t BytesAnywhere
    __attribute__((vector_size(kWidth), aligned(1), may_alias));
typedef int8_t SixteenBytes __attribute__((vector_size(16)));
typedef int8_t SixteenBytesAnywhere
    __attribute__((vector_size(16), aligned(1), may_alias));

MLXX_INLINE SixteenBytes even_first(SixteenBytes bytes) {
  const SixteenBytes order =
      {0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15};
  return __builtin_shuffle(bytes, order);
}

// The low bytes of a chunk's integers.
MLXX_INLINE void store_chunk(
    const Ints (&numbers)[kChunk / kWidth],
    ByteOrder order,
    int8_t* to) {
#if defined(__AVX512F__)
  // GCC 12 narrows a vector in pieces unless told how.
#pragma GCC unroll 2
  for (int i = 0; i < kChunk / kWidth; ++i) {
    auto bytes =
        (SixteenBytes)_mm512_maskz_cvtepi32_epi8(0xffff, (__m512i)numbers[i]);
    *reinterpret_cast<SixteenBytesAnywhere*>(to + i * kWidth) =
        order == ByteOrder::even_first ? even_first(bytes) : bytes;
  }
#else
#pragma GCC unroll 8
  for (int i = 0; i < kChunk / kWidth; ++i) {
    *reinterpret_cast<BytesAnywhere*>(to + i * kWidth) =
        __builtin_convertvector(numbers[i], Bytes);
  }
  if (order == ByteOrder::even_first) {
    for (int i = 0; i < kChunk; i += 16) {
      auto* at = reinterpret_cast<SixteenBytesAnywhere*>(to + i);
      *at = even_first(*at);
    }
  }
#endif
}

typedef int32_t FourInts __attribute__((vector_size(16)));

// Joins the quarters, eighths, ... of a vector.
template <typename Join>
MLXX_INLINE FourInts fold(Ints v, const Join& join) {
#if defined(__AVX2__)
  typedef int32_t EightInts __attribute__((vector_size(32)));
#if defined(__AVX512F__)
  EightInts eight = join(
      __builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7),
      __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15));
#else
  EightInts eight = v;
#endif
  return join(
      __builtin_shufflevector(eight, eight, 0, 1, 2, 3),
      __builtin_shufflevector(eight, eight, 4, 5, 6, 7));
#else
  static_cast<void>(join);
  return v;
#endif
}

// The largest of lanes that are not negative.
MLXX_INLINE int32_t largest_int(Ints v) {
  auto larger = [](auto a, auto b) { return a > b ? a : b; };
  FourInts four = fold(v, larger);
  four = larger(four, __builtin_shufflevector(four, four, 2, 3, 0, 1));
  return four[0] > four[1] ? four[0] : four[1];
}

// sums[0] = the sum of both, sums[1] = that of the second.
MLXX_INLINE void sum_halves(Ints first, Ints second, int32_t* sums) {
  // Unsigned, as integers made of what is no number overflow.
  typedef uint32_t FourWords __attribute__((vector_size(16)));
  auto add = [](auto a, auto b) { return a + b; };
  auto a = (FourWords)fold(first, add);
  auto b = (FourWords)fold(second, add);
  FourWords pairs = __builtin_shufflevector(a, b, 0, 1, 4, 5) +
      __builtin_shufflevector(a, b, 2, 3, 6, 7);
  uint32_t sum = pairs[2] + pairs[3];
  sums[0] = static_cast<int32_t>(pairs[0] + pairs[1] + sum);
  sums[1] = static_cast<int32_t>(sum);
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
    float* sum,
    int32_t* byte_sums) {
  constexpr float kLargest = kTwoBytes ? 127 * 256 : 127;
  constexpr int kParts = kChunk / kWidth;
  Floats v[kParts];
  // Magnitudes compare like their bits, and what is no number or infinite is
  // above all others.
  Ints most = {};
#pragma GCC unroll 8
  for (int i = 0; i < kParts; ++i) {
    v[i] = load(x + i * kWidth);
    Ints magnitude = (Ints)v[i] & 0x7fffffff;
    most = magnitude > most ? magnitude : most;
  }
  float largest = __builtin_bit_cast(float, largest_int(most));
  *scale = largest / kLargest;
  Floats inverse = broadcast(largest > kSmallest ? kLargest / largest : 0.0f);
  Ints halves[2] = {};
  Ints n[kParts];
#pragma GCC unroll 8
  for (int i = 0; i < kParts; ++i) {
    n[i] = to_nearest(v[i] * inverse);
    halves[i / (kParts / 2)] += n[i];
  }
  if constexpr (kTwoBytes) {
    Ints upper[kParts];
#pragma GCC unroll 8
    for (int i = 0; i < kParts; ++i) {
      upper[i] = (n[i] + 128) >> 8;
    }
    store_chunk(upper, order, high);
    store_chunk(n, order, low);
  } else {
    store_chunk(n, order, high);
  }
  sum_halves(halves[0], halves[1], byte_sums);
  *sum = *scale * static_cast<float>(byte_sums[0]);
}

void quantize_row(
    const float* x,
    int64_t chunks,
    ByteOrder order,
    int8_t* high,
    int8_t* low,
    float* scales,
    float* sums,
    int32_t* byte_sums) {
  for (int64_t c = 0; c < chunks; ++c) {
    int64_t at = c * kChunk;
    int32_t* integers = byte_sums + 2 * c;
    if (low) {
      quantize_chunk<true>(
          x + at,
          order,
          high + at,
          low + at,
          scales + c,
          sums + c,
          integers);
    } else {
      quantize_chunk<false>(
          x + at,
          order,
          high + at,
          nullptr,
          scales + c,
          sums + c,
          integers);
    }
  }
}

}  // namespace
}  // namespace mlxx::kernels
