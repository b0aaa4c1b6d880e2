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

#if defined(__AVX512BW__)
// The magnitudes of E4M3 codes as bfloat16, which holds them exactly.
struct E4m3Table {
  alignas(64) uint16_t bits[128];

  constexpr E4m3Table() : bits{} {
    for (int code = 0; code < 128; ++code) {
      int exponent = code >> 3;
      int mantissa = code & 7;
      if (exponent == 0 && mantissa > 0) {
        // Subnormal numbers have their first one in the mantissa.
        exponent = 1;
        while (mantissa < 8) {
          mantissa *= 2;
          --exponent;
        }
        mantissa -= 8;
        bits[code] =
            static_cast<uint16_t>((exponent + 120) << 7 | mantissa << 4);
      } else if (exponent > 0) {
        bits[code] =
            static_cast<uint16_t>((exponent + 120) << 7 | mantissa << 4);
      }
    }
    bits[127] = 0x7fc0;  // not a number
  }
};
constexpr E4m3Table kE4m3Table;

// Codes in lanes of 16 bits to bfloat16 numbers.
MLXX_INLINE Words e4m3_bfloats(Words codes) {
  const auto* table = reinterpret_cast<const __m512i*>(kE4m3Table.bits);
  auto index = (__m512i)codes;
  __mmask32 large = _mm512_test_epi16_mask(index, _mm512_set1_epi16(0x40));
  __m512i value = _mm512_mask_blend_epi16(
      large,
      _mm512_permutex2var_epi16(table[0], index, table[1]),
      _mm512_permutex2var_epi16(table[2], index, table[3]));
  return (Words)value | ((codes << 8) & 0x80008000u);
}
#endif

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
#if defined(__AVX512BW__)
    // Of each word's four codes those that stand two bytes apart together.
    Words four = load_words(words + index / 4 * kLanes + v * kWidth);
    Words two = (index % 2 == 0 ? four : four >> 8) & 0x00ff00ffu;
    Words numbers = e4m3_bfloats(two);
    return (Floats)(index % 4 < 2 ? numbers << 16 : numbers & 0xffff0000u);
#endif
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

// Numbers `input` (even) and the next one of vector v of a dense panel.
template <NumberType kType>
MLXX_INLINE void
load_pair(const std::byte* panel, int64_t input, int v, Floats (&pair)[2]) {
  if constexpr (kType == NumberType::bfloat16) {
    const auto* words = reinterpret_cast<const uint32_t*>(panel);
    Words both = load_words(words + input / 2 * kLanes + v * kWidth);
    pair[0] = (Floats)(both << 16);
    pair[1] = (Floats)(both & 0xffff0000u);
  } else {
    constexpr int kBytes = kType == NumberType::float16 ? 2 : 4;
    const std::byte* at = panel + input * kLanes * kBytes;
    pair[0] = load_number(at, kType, v);
    pair[1] = load_number(at + kLanes * kBytes, kType, v);
  }
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

// The scales of a chunk's two halves, 32 floats each, and its 32 biases.
MLXX_INLINE void store_scales(
    const PanelLayout& layout,
    const std::byte* panel,
    int64_t chunk,
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
    Floats second = layout.half_groups
        ? load_number(second_scales(layout, group), layout.type, v)
        : s[v];
    store(scales + kLanes + v * kWidth, second);
  }
}

MLXX_INLINE const uint32_t*
chunk_words(const PanelLayout& layout, const std::byte* panel, int64_t chunk) {
  int per_group = layout.chunks_per_group();
  return reinterpret_cast<const uint32_t*>(
      panel + (chunk / per_group) * layout.group_bytes() +
      layout.header_bytes() + (chunk % per_group) * layout.chunk_bytes());
}

// Bytes fetched ahead of one row's product, its own panel or the next.
constexpr int kAhead = 16384;
constexpr size_t kLine = 64;

// Past a matrix's last panel nothing is read.
MLXX_INLINE void fetch(const std::byte* at, size_t bytes) {
  for (size_t i = 0; i < bytes; i += kLine) {
    __builtin_prefetch(at + i);
  }
}

}  // namespace
}  // namespace mlxx::kernels
