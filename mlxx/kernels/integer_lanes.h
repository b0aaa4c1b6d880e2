#pragma once

// Products of bytes summed into 32-bit lanes, under the same rules as
// vector_lanes.h. Every instruction set gives the same integers.
#include "mlxx/kernels/vector_lanes.h"

namespace {

typedef int16_t Shorts __attribute__((vector_size(4 * kWidth)));
typedef uint16_t UnsignedShorts __attribute__((vector_size(4 * kWidth)));
typedef int32_t IntsAnywhere
    __attribute__((vector_size(4 * kWidth), aligned(4), may_alias));

// Four bytes as one number, in memory that may hold anything else.
typedef uint32_t FourBytes __attribute__((aligned(1), may_alias));

MLXX_INLINE Words broadcast_bytes(const int8_t* four) {
  return Words{} + *reinterpret_cast<const FourBytes*>(four);
}

// sum + a0 b0 + a1 b1 + a2 b2 + a3 b3 in each lane, where a are unsigned bytes
// and b signed ones. kSmall: no a is above 127, which older instruction sets
// need for their quick form.
template <bool kSmall>
MLXX_INLINE Ints add_byte_products(Ints sum, Words a, Words b) {
#if defined(__AVX512VNNI__)
  return (Ints)_mm512_dpbusd_epi32((__m512i)sum, (__m512i)a, (__m512i)b);
#elif defined(__AVX512BW__)
  if constexpr (kSmall) {
    __m512i pairs = _mm512_maddubs_epi16((__m512i)a, (__m512i)b);
    return sum + (Ints)_mm512_madd_epi16(pairs, _mm512_set1_epi16(1));
  }
#elif defined(__AVX2__)
  if constexpr (kSmall) {
    __m256i pairs = _mm256_maddubs_epi16((__m256i)a, (__m256i)b);
    return sum + (Ints)_mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
  }
#elif defined(__ARM_FEATURE_MATMUL_INT8)
  return vusdotq_s32(sum, (uint8x16_t)a, (int8x16_t)b);
#elif defined(__ARM_FEATURE_DOTPROD)
  if constexpr (kSmall) {
    return vdotq_s32(sum, (int8x16_t)a, (int8x16_t)b);
  } else {
    // a - 128 is signed; 128 times the sum of b makes up for it.
    int8x16_t shifted = (int8x16_t)(a ^ 0x80808080u);
    Ints sums = vdotq_s32(Ints{}, vdupq_n_s8(1), (int8x16_t)b);
    return vdotq_s32(sum, shifted, (int8x16_t)b) + (sums << 7);
  }
#endif
  // Products of two bytes fit in 16 bits: at most 255 * 128.
  Shorts even_a = (Shorts)(a & 0x00ff00ffu);
  Shorts odd_a = (Shorts)((UnsignedShorts)a >> 8);
  Shorts even_b = (Shorts)((UnsignedShorts)b << 8) >> 8;
  Shorts odd_b = (Shorts)b >> 8;
#if defined(__AVX512BW__)
  return sum + (Ints)_mm512_madd_epi16((__m512i)even_a, (__m512i)even_b) +
      (Ints)_mm512_madd_epi16((__m512i)odd_a, (__m512i)odd_b);
#elif defined(__AVX2__)
  return sum + (Ints)_mm256_madd_epi16((__m256i)even_a, (__m256i)even_b) +
      (Ints)_mm256_madd_epi16((__m256i)odd_a, (__m256i)odd_b);
#else
  Ints even = (Ints)(even_a * even_b);
  Ints odd = (Ints)(odd_a * odd_b);
  return sum + (((Ints)((Words)even << 16) >> 16) + (even >> 16)) +
      (((Ints)((Words)odd << 16) >> 16) + (odd >> 16));
#endif
}

MLXX_INLINE Floats from_ints(Ints v) {
  return __builtin_convertvector(v, Floats);
}

// To the nearest integer, ties to even; |v| below 2^22.
MLXX_INLINE Ints to_nearest(Floats v) {
  const Floats rounder = broadcast(12582912.0f);  // 1.5 * 2^23
  return (Ints)(v + rounder) - (Ints)rounder;
}

}  // namespace
