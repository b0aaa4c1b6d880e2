#pragma once

// Reading the numbers of a panel, for sources that are compiled once per
// instruction set.
#include "mlxx/kernels/quantized_matmul/panel_kernels.h"
#include "mlxx/kernels/vector_lanes.h"

namespace mlxx::kernels {
namespace {

// Vectors per panel.
constexpr int kVectors = kLanes / kWidth;
constexpr int kHalf = kChunk / 2;

// Number `index` of the chunk in the low bits of each lane of vector v, with
// other numbers above it.
template <int kBits>
MLXX_INLINE Words unmasked_bits(const uint32_t* words, int index, int v) {
  int first = index * kBits;
  int word = first / 32;
  int shift = first % 32;
  Words bits = load_words(words + word * kLanes + v * kWidth) >> shift;
  if (shift + kBits > 32) {
    bits |= load_words(words + (word + 1) * kLanes + v * kWidth)
        << (32 - shift);
  }
  return bits;
}

template <int kBits>
MLXX_INLINE Words quantized_bits(const uint32_t* words, int index, int v) {
  return unmasked_bits<kBits>(words, index, v) & ((1u << kBits) - 1);
}

// For each byte, which is a code of E2M1, twice its value plus 12: 0 .. 24.
MLXX_INLINE Words e2m1_bytes(Words codes) {
#if defined(__AVX512BW__)
  const __m512i table =
      _mm512_set4_epi32(0x00040608, 0x090a0b0c, 0x18141210, 0x0f0e0d0c);
  return (Words)_mm512_shuffle_epi8(table, (__m512i)codes);
#elif defined(__AVX2__)
  const __m256i table = _mm256_setr_epi32(
      0x0f0e0d0c,
      0x18141210,
      0x090a0b0c,
      0x00040608,
      0x0f0e0d0c,
      0x18141210,
      0x090a0b0c,
      0x00040608);
  return (Words)_mm256_shuffle_epi8(table, (__m256i)codes);
#elif defined(__aarch64__)
  const Words table = {0x0f0e0d0c, 0x18141210, 0x090a0b0c, 0x00040608};
  return (Words)vqtbl1q_u8((uint8x16_t)table, (uint8x16_t)codes);
#else
  typedef int8_t SignedBytes __attribute__((vector_size(4 * kWidth)));
  SignedBytes code = (SignedBytes)codes;
  SignedBytes negative = code > 7;
  SignedBytes k = code & 7;
  // A comparison that holds is -1: 5, 6, 7 become 6, 8, 12.
  SignedBytes size = k - (k > 4) - (k > 5) + ((k > 6) & 3);
  return (Words)(((size ^ negative) - negative) + 12);
#endif
}

// The value of an E2M1 code in the low bits of each lane, anything above it.
MLXX_INLINE Floats e2m1_value(Words bits) {
#if defined(__AVX512F__)
  const __m512 values = _mm512_setr_ps(
      0,
      0.5f,
      1,
      1.5f,
      2,
      3,
      4,
      6,
      0,
      -0.5f,
      -1,
      -1.5f,
      -2,
      -3,
      -4,
      -6);
  return _mm512_maskz_permutexvar_ps(0xffff, (__m512i)bits, values);
#elif defined(__AVX2__)
  const __m256 sizes = _mm256_setr_ps(0, 0.5f, 1, 1.5f, 2, 3, 4, 6);
  Words size = (Words)_mm256_permutevar8x32_ps(sizes, (__m256i)bits);
  return (Floats)(size | ((bits << 28) & 0x80000000u));
#else
  Words bytes = e2m1_bytes(bits & 0x0fu) & 0xffu;
  return (to_floats(bytes) - 12.0f) * 0.5f;
#endif
}

// E4M3 numbers in lanes of 0 .. 255.
MLXX_INLINE Floats e4m3_value(Words bits) {
  Words size = bits & 0x7fu;
  Words placed = size << 20;
  Floats normal = (Floats)(placed + (120u << 23));
  // Subnormal numbers as the mantissa above the smallest normal one.
  Floats small = (Floats)(placed + (121u << 23)) - 0x1p-6f;
  Words value = (Words)(size < 8u ? small : normal);
  value |= (Words)(size == 0x7fu);  // not a number
  return (Floats)(value | ((bits & 0x80u) << 24));
}

// Powers of two in lanes of 0 .. 255; 255 is infinite, as MLX has it.
MLXX_INLINE Floats e8m0_value(Words bits) {
  Words placed = bits << 23;
  return (Floats)(bits == 0u ? Words{} + 0x00400000u : placed);
}

template <int kBits, Codes kCodes = Codes::integers>
MLXX_INLINE Floats quantized_number(const uint32_t* words, int index, int v) {
  if constexpr (kCodes == Codes::e2m1) {
    return e2m1_value(unmasked_bits<kBits>(words, index, v));
  }
  if constexpr (kCodes == Codes::e4m3) {
    return e4m3_value(quantized_bits<kBits>(words, index, v));
  }
#if defined(__AVX512F__)
  if constexpr (kBits == 4) {
    // The lookup ignores all but the low four bits.
    const __m512 numbers =
        _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    Words bits = unmasked_bits<kBits>(words, index, v);
    return _mm512_maskz_permutexvar_ps(0xffff, (__m512i)bits, numbers);
  }
#endif
  return to_floats(quantized_bits<kBits>(words, index, v));
}

// Bytes widened to lanes of 32 bits.
MLXX_INLINE Words load_bytes(const std::byte* at) {
  // GCC 12 widens a whole vector in pieces unless told how.
#if defined(__AVX512F__)
  return (Words)_mm512_maskz_cvtepu8_epi32(
      0xffff,
      _mm_loadu_si128(reinterpret_cast<const __m128i*>(at)));
#elif defined(__AVX2__)
  return (Words)_mm256_cvtepu8_epi32(
      _mm_loadl_epi64(reinterpret_cast<const __m128i*>(at)));
#else
  typedef uint8_t ByteLanes
      __attribute__((vector_size(kWidth), aligned(1), may_alias));
  return __builtin_convertvector(
      *reinterpret_cast<const ByteLanes*>(at),
      Words);
#endif
}

MLXX_INLINE Floats load_number(const std::byte* at, NumberType type, int v) {
  if (type == NumberType::e8m0 || type == NumberType::e4m3) {
    Words bits = load_bytes(at + v * kWidth);
    return type == NumberType::e8m0 ? e8m0_value(bits) : e4m3_value(bits);
  }
  if (type == NumberType::float16) {
    return load_float16(reinterpret_cast<const uint16_t*>(at) + v * kWidth);
  }
  if (type == NumberType::bfloat16) {
    return load_bfloat16(reinterpret_cast<const uint16_t*>(at) + v * kWidth);
  }
  return load(reinterpret_cast<const float*>(at) + v * kWidth);
}

MLXX_INLINE void load_scales(
    const PanelLayout& layout,
    const std::byte* group,
    Floats (&scales)[kVectors],
    Floats (&biases)[kVectors]) {
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v) {
    scales[v] = load_number(group, layout.type, v);
    biases[v] = layout.symmetric
        ? scales[v] * layout.zero
        : load_number(group + kLanes * layout.number_bytes(), layout.type, v);
  }
}

// Where the scales of a group's second half are.
MLXX_INLINE const std::byte* second_scales(
    const PanelLayout& layout,
    const std::byte* group) {
  return group + (layout.half_groups ? kLanes * layout.number_bytes() : 0);
}

// The scales of a chunk's `halves` halves (one: of all of it), 32 floats each,
// and its 32 biases.
MLXX_INLINE void store_scales(
    const PanelLayout& layout,
    const std::byte* panel,
    int64_t chunk,
    int halves,
    float* scales,
    float* biases) {
  const std::byte* group =
      panel + (chunk / layout.chunks_per_group()) * layout.group_bytes();
  Floats s[kVectors];
  Floats b[kVectors];
  load_scales(layout, group, s, b);
  for (int v = 0; v < kVectors; ++v) {
    store(scales + v * kWidth, s[v]);
    store(biases + v * kWidth, b[v]);
    if (halves == 2) {
      Floats second = layout.half_groups
          ? load_number(second_scales(layout, group), layout.type, v)
          : s[v];
      store(scales + kLanes + v * kWidth, second);
    }
  }
}

MLXX_INLINE const uint32_t*
chunk_words(const PanelLayout& layout, const std::byte* panel, int64_t chunk) {
  int per_group = layout.chunks_per_group();
  return reinterpret_cast<const uint32_t*>(
      panel + (chunk / per_group) * layout.group_bytes() +
      layout.header_bytes() + (chunk % per_group) * layout.chunk_bytes());
}

}  // namespace
}  // namespace mlxx::kernels
