// Compiled once per instruction set, with MLXX_BYTE_KERNELS naming the table of
// that variant.
#include "mlxx/kernels/quantized_matmul/byte_kernels.h"

#include "mlxx/kernels/quantized_matmul/panel_bytes.h"
#include "mlxx/kernels/quantized_matmul/row_rounding.h"

namespace mlxx::kernels {
namespace {

template <int kBits, Codes kCodes, Sums kSums, bool kTwoBytes>
MLXX_INLINE void one_row_of(
    const PanelLayout& layout,
    const std::byte* panel,
    const ActivationRows& activations,
    int64_t row,
    float* y) {
  constexpr bool kSmall = kBits < 8;
  int64_t chunks = layout.chunks();
  int per_group = layout.chunks_per_group();
  size_t step = layout.group_bytes() / per_group;
  const int8_t* high = activations.high + row * layout.in;
  const int8_t* low = kTwoBytes ? activations.low + row * layout.in : nullptr;
  const float* row_scales = activations.scales + row * chunks;
  const float* row_sums = activations.sums + row * chunks;
  constexpr int kParts = kSums == Sums::halves ? 2 : 1;
  const int32_t* byte_sums = activations.byte_sums + 2 * row * chunks;
  int32_t offset = byte_offset(layout);
  // The bytes of E2M1 codes are twice their values.
  constexpr float kUnit = kCodes == Codes::e2m1 ? 0.5f : 1.0f;
  Floats total[kVectors] = {};
  const std::byte* at = panel;
  for (int64_t chunk = 0; chunk < chunks;) {
    Floats scales[kVectors];
    Floats biases[kVectors];
    load_scales(layout, at, scales, biases);
    Floats part_scales[kParts][kVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      part_scales[0][v] = scales[v] * kUnit;
      if constexpr (kParts == 2) {
        part_scales[1][v] =
            load_number(second_scales(layout, at), layout.type, v) * kUnit;
      }
    }
    at += layout.header_bytes();
    for (int64_t end = chunk + per_group; chunk < end; ++chunk) {
      const auto* words = reinterpret_cast<const uint32_t*>(at);
      at += layout.chunk_bytes();
      fetch(at + kAhead, step);
      Floats scale = broadcast(row_scales[chunk]);
      Floats sum = broadcast(row_sums[chunk]);
#pragma GCC unroll 2
      for (int part = 0; part < kParts; ++part) {
        Ints upper[kVectors] = {};
        Ints lower[kVectors] = {};
#pragma GCC unroll 8
        for (int w = 0; w < kWords / kParts; ++w) {
          int i = part * (kWords / kParts) + w;
          Words a = broadcast_bytes(high + 4 * i);
          Words b = kTwoBytes ? broadcast_bytes(low + 4 * i) : a;
#pragma GCC unroll 8
          for (int v = 0; v < kVectors; ++v) {
            Words q = panel_bytes<kBits>(words, i, v);
            if constexpr (kCodes == Codes::e2m1) {
              q = e2m1_bytes(q);
            }
            upper[v] = add_byte_products<kSmall>(upper[v], q, a);
            if constexpr (kTwoBytes) {
              lower[v] = add_byte_products<kSmall>(lower[v], q, b);
            }
          }
        }
#pragma GCC unroll 8
        for (int v = 0; v < kVectors; ++v) {
          Ints n = kTwoBytes ? (upper[v] << 8) + lower[v] : upper[v];
          if constexpr (kSums != Sums::biased) {
            n -= excess<kSums>(offset, byte_sums + 2 * chunk, part);
          }
          Floats s = part_scales[part][v] * scale;
          total[v] = multiply_add(from_ints(n), s, total[v]);
          if constexpr (kSums == Sums::biased) {
            total[v] = multiply_add(biases[v], sum, total[v]);
          }
        }
      }
      high += kChunk;
      low += kTwoBytes ? kChunk : 0;
    }
  }
  for (int v = 0; v < kVectors; ++v) {
    store(y + v * kWidth, total[v]);
  }
}

template <int kBits, Codes kCodes, Sums kSums>
void one_row_of_form(
    const PanelLayout& layout,
    const std::byte* panel,
    const ActivationRows& activations,
    int64_t row,
    float* y) {
  if (activations.low) {
    one_row_of<kBits, kCodes, kSums, true>(layout, panel, activations, row, y);
  } else {
    one_row_of<kBits, kCodes, kSums, false>(layout, panel, activations, row, y);
  }
}

template <int kBits>
void one_row_of_bits(
    const PanelLayout& layout,
    const std::byte* panel,
    const ActivationRows& activations,
    int64_t row,
    float* y) {
  constexpr auto kCodes = Codes::integers;
  if (layout.symmetric) {
    one_row_of_form<kBits, kCodes, Sums::whole>(
        layout,
        panel,
        activations,
        row,
        y);
  } else {
    one_row_of_form<kBits, kCodes, Sums::biased>(
        layout,
        panel,
        activations,
        row,
        y);
  }
}

void one_row(
    const PanelLayout& layout,
    const std::byte* panel,
    const ActivationRows& activations,
    int64_t row,
    float* y) {
  if (layout.codes == Codes::e2m1) {
    constexpr auto kCodes = Codes::e2m1;
    return layout.half_groups ? one_row_of_form<4, kCodes, Sums::halves>(
                                    layout,
                                    panel,
                                    activations,
                                    row,
                                    y)
                              : one_row_of_form<4, kCodes, Sums::whole>(
                                    layout,
                                    panel,
                                    activations,
                                    row,
                                    y);
  }
  switch (layout.bits) {
    case 2:
      return one_row_of_bits<2>(layout, panel, activations, row, y);
    case 3:
      return one_row_of_bits<3>(layout, panel, activations, row, y);
    case 4:
      return one_row_of_bits<4>(layout, panel, activations, row, y);
    case 5:
      return one_row_of_bits<5>(layout, panel, activations, row, y);
    case 6:
      return one_row_of_bits<6>(layout, panel, activations, row, y);
    case 8:
      return one_row_of_bits<8>(layout, panel, activations, row, y);
  }
}

}  // namespace

ByteTiles MLXX_BYTE_TILES;  // of byte_tiles_cpu.cpp

extern const ByteKernels MLXX_BYTE_KERNELS;
const ByteKernels MLXX_BYTE_KERNELS = {quantize_row, one_row, MLXX_BYTE_TILES};

}  // namespace mlxx::kernels
