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

MLXX_INLINE int32_t sum_ints(Ints v) {
  int32_t sum = 0;
  for (int i = 0; i < kWidth; ++i) {
    sum += v[i];
  }
  return sum;
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
    int32_t* half_sums) {
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
  Ints halves[2] = {};
#pragma GCC unroll 8
  for (int i = 0; i < kParts; ++i) {
    Ints n = to_nearest(v[i] * inverse);
    halves[i / (kParts / 2)] += n;
    if constexpr (kTwoBytes) {
      Ints upper = (n + 128) >> 8;
      store_bytes(high + i * kWidth, upper);
      store_bytes(low + i * kWidth, n - (upper << 8));
    } else {
      store_bytes(high + i * kWidth, n);
    }
  }
  *sum = *scale * static_cast<float>(sum_ints(halves[0] + halves[1]));
  if (half_sums) {
    half_sums[0] = sum_ints(halves[0]);
    half_sums[1] = sum_ints(halves[1]);
  }
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
    float* sums,
    int32_t* half_sums) {
  for (int64_t c = 0; c < chunks; ++c) {
    int64_t at = c * kChunk;
    int32_t* halves = half_sums ? half_sums + 2 * c : nullptr;
    if (low) {
      quantize_chunk<true>(
          x + at,
          order,
          high + at,
          low + at,
          scales + c,
          sums + c,
          halves);
    } else {
      quantize_chunk<false>(
          x + at,
          order,
          high + at,
          nullptr,
          scales + c,
          sums + c,
          halves);
    }
  }
}

}  // namespace
}  // namespace mlxx::kernels
