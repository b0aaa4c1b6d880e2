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

template <int kBits>
MLXX_INLINE Floats quantized_number(const uint32_t* words, int index, int v) {
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

MLXX_INLINE Floats load_number(const std::byte* at, NumberType type, int v) {
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

// The scales and biases of a chunk, 32 floats each.
MLXX_INLINE void store_scales(
    const PanelLayout& layout,
    const std::byte* panel,
    int64_t chunk,
    float* scales,
    float* biases) {
  Floats s[kVectors];
  Floats b[kVectors];
  load_scales(
      layout,
      panel + (chunk / layout.chunks_per_group()) * layout.group_bytes(),
      s,
      b);
  for (int v = 0; v < kVectors; ++v) {
    store(scales + v * kWidth, s[v]);
    store(biases + v * kWidth, b[v]);
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
