#pragma once

// Reading a panel's numbers as bytes, for sources that are compiled once per
// instruction set.
#include "mlxx/kernels/integer_lanes.h"
#include "mlxx/kernels/quantized_matmul/panel_numbers.h"

namespace mlxx::kernels {
namespace {

// Words of four bytes per chunk and lane.
constexpr int kWords = kChunk / 4;

// Word `index` of a chunk's bytes in each lane of vector v.
template <int kBits>
MLXX_INLINE Words panel_bytes(const uint32_t* words, int index, int v) {
  if constexpr (kBits == 8) {
    return load_words(words + index * kLanes + v * kWidth);
  } else if constexpr (kBits == 4) {
    Words both = load_words(words + (index / 2) * kLanes + v * kWidth);
    return (index % 2 == 0 ? both : both >> 4) & 0x0f0f0f0fu;
  } else {
    Words four = {};
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      four |= quantized_bits<kBits>(words, 4 * index + i, v) << (8 * i);
    }
    return four;
  }
}

// How a chunk's integers become numbers.
enum class Sums {
  biased,  // one scale, and a bias
  whole,   // less the layout's offset, with one scale
  halves,  // less the offset, with a scale for each half
};

// Whether biases are no multiple of the scales.
MLXX_INLINE bool is_biased(const PanelLayout& layout) {
  return layout.codes == Codes::integers && !layout.symmetric;
}

// What every byte is above the number that it stands for.
MLXX_INLINE int32_t byte_offset(const PanelLayout& layout) {
  return layout.codes == Codes::e2m1 ? 12 : 1 << (layout.bits - 1);
}

// What the offset adds to the products of a whole chunk, or of half `part` of
// it; byte_sums as in ActivationRows.
template <Sums kSums>
MLXX_INLINE Ints excess(int32_t offset, const int32_t* byte_sums, int part) {
  auto whole = static_cast<uint32_t>(byte_sums[0]);
  auto second = static_cast<uint32_t>(byte_sums[1]);
  uint32_t sum = kSums == Sums::whole ? whole
      : part == 0                     ? whole - second
                                      : second;
  return (Ints)(Words{} + static_cast<uint32_t>(offset) * sum);
}

}  // namespace
}  // namespace mlxx::kernels
