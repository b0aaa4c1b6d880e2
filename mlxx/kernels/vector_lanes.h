#pragma once

// The widest float vector of the instruction set that this file is compiled
// for, with the few operations that kernels need. Included only by sources
// that are compiled once per instruction set: everything is in an unnamed
// namespace, and nothing of the standard library but its types is used. A cast
// between vector types of one size keeps the bits.

#include <cstdint>

#if defined(__AVX2__) || defined(__AVX512F__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace {

#if defined(__AVX512F__)
constexpr int kWidth = 16;
#elif defined(__AVX2__)
constexpr int kWidth = 8;
#else
constexpr int kWidth = 4;
#endif

typedef float Floats __attribute__((vector_size(4 * kWidth)));
typedef int32_t Ints __attribute__((vector_size(4 * kWidth)));
typedef uint32_t Words __attribute__((vector_size(4 * kWidth)));
// The same in memory that is not aligned.
typedef float FloatsAnywhere
    __attribute__((vector_size(4 * kWidth), aligned(4), may_alias));
typedef uint32_t WordsAnywhere
    __attribute__((vector_size(4 * kWidth), aligned(4), may_alias));
typedef uint16_t Halves
    __attribute__((vector_size(2 * kWidth), aligned(2), may_alias));

#define MLXX_INLINE static inline __attribute__((always_inline))

MLXX_INLINE Floats load(const float* p) {
  return *reinterpret_cast<const FloatsAnywhere*>(p);
}

MLXX_INLINE void store(float* p, Floats v) {
  *reinterpret_cast<FloatsAnywhere*>(p) = v;
}

MLXX_INLINE Words load_words(const uint32_t* p) {
  return *reinterpret_cast<const WordsAnywhere*>(p);
}

MLXX_INLINE Floats broadcast(float value) {
#if defined(__AVX512F__)
  return _mm512_set1_ps(value);
#elif defined(__AVX2__)
  return _mm256_set1_ps(value);
#else
  return Floats{value, value, value, value};
#endif
}

// a * b + c with one rounding where the instruction set has it.
MLXX_INLINE Floats multiply_add(Floats a, Floats b, Floats c) {
#if defined(__AVX512F__)
  return _mm512_fmadd_ps(a, b, c);
#elif defined(__AVX2__)
  return _mm256_fmadd_ps(a, b, c);
#elif defined(__aarch64__)
  return vfmaq_f32(c, a, b);
#else
  return a * b + c;
#endif
}

MLXX_INLINE Floats to_floats(Words v) {
  return __builtin_convertvector((Ints)v, Floats);
}

// Half-precision numbers, all of them finite.
MLXX_INLINE Floats load_float16(const uint16_t* p) {
#if defined(__AVX512F__)
  // The form with a mask: GCC 12 warns about the other one's own header.
  return _mm512_maskz_cvtph_ps(
      0xffff,
      _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
#elif defined(__AVX2__)
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
#else
  Words h = __builtin_convertvector(*reinterpret_cast<const Halves*>(p), Words);
  Words magnitude = (h & 0x7fffu) << 13;
  // 2^112 moves the exponent's bias, for subnormal numbers as well.
  Floats value = (Floats)magnitude * 0x1p112f;
  Words bits = (Words)value | ((h & 0x8000u) << 16);
  return (Floats)bits;
#endif
}

// To the nearest half, ties to even; beyond its range the largest one.
MLXX_INLINE void store_float16(uint16_t* p, Floats v) {
  const Floats most = broadcast(65504.0f);
  v = v > most ? most : v;
  v = v < -most ? -most : v;
#if defined(__AVX512F__)
  _mm256_storeu_si256(
      reinterpret_cast<__m256i*>(p),
      _mm512_maskz_cvtps_ph(0xffff, v, _MM_FROUND_TO_NEAREST_INT));
#elif defined(__AVX2__)
  _mm_storeu_si128(
      reinterpret_cast<__m128i*>(p),
      _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
#else
  Words sign = ((Words)v >> 16) & 0x8000u;
  Words bits = (Words)v & 0x7fffffffu;
  // Adding a power of two leaves what a subnormal half holds in the low bits.
  Words small = (Words)((Floats)bits + broadcast(0.5f)) - 0x3f000000u;
  Words odd = (bits >> 13) & 1u;
  Words normal = (bits + 0x0fffu + odd - 0x38000000u) >> 13;
  Words half = bits < 0x38800000u ? small : normal;
  half = bits > 0x7f800000u ? Words{} + 0x7e00u : half;  // not a number
  *reinterpret_cast<Halves*>(p) = __builtin_convertvector(half | sign, Halves);
#endif
}

MLXX_INLINE Floats load_bfloat16(const uint16_t* p) {
  // GCC 12 widens a whole vector in pieces unless told how.
#if defined(__AVX512F__)
  Words bits = (Words)_mm512_maskz_cvtepu16_epi32(
      0xffff,
      _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
#elif defined(__AVX2__)
  Words bits = (Words)_mm256_cvtepu16_epi32(
      _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
#else
  Words bits =
      __builtin_convertvector(*reinterpret_cast<const Halves*>(p), Words);
#endif
  return (Floats)(bits << 16);
}

}  // namespace
