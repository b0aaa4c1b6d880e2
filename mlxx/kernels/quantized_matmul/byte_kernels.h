#pragma once

#include "mlxx/kernels/quantized_matmul/panel_kernels.h"

// Products of quantized panels with activations rounded to integers, compiled
// once per instruction set like the rest of panel_kernels.h. Integer sums are
// exact, so every instruction set, number of rows and number of threads sums a
// chunk to the same number; chunks are added up in their order.
namespace mlxx::kernels {

// How rows of activations enter products.
enum class ActivationForm {
  float32,  // as they are
  // 16 bits as two signed bytes, x = scale * (256 * high + low), with one scale
  // per chunk: error about 1e-5 of the chunk's largest number.
  int16,
  // One signed byte, x = scale * high: error about 4e-3 of it. Where the
  // processor multiplies bfloat16 numbers, rows that meet a dense bfloat16
  // matrix are rounded to bfloat16 instead: error at most 4e-3 of each number.
  int8,
};

// Where number i of a chunk stands among its 32 bytes.
enum class ByteOrder {
  in_order,
  // Of each eight first those with even index, then those with odd ones: what
  // the low and the high nibbles of a 32-bit word hold.
  even_first,
};

// Rows [rows, in] of activations, prepared for products.
struct ActivationRows {
  ActivationForm form;
  int64_t rows;
  int64_t in;
  const float* numbers;  // [rows, in], float32 only
  const int8_t* high;    // [rows, in], the other forms
  const int8_t* low;     // [rows, in], int16 only
  const float* scales;   // [rows, in / 32], int8 and int16
  // [rows, in / 32]: the sum of each chunk, of the rounded numbers if they are.
  const float* sums;
  // [rows, in / 32][2]: the sum of the integers of each chunk, and of its
  // second half.
  const int32_t* byte_sums = nullptr;
  // [rows, in]: bfloat16 numbers instead of all others; dense matrices in the
  // int8 form only.
  const uint16_t* rounded = nullptr;
};

// Chunks of a panel that are multiplied with all rows before the next ones: a
// core's nearest cache holds them with the rows of a tile.
inline constexpr int64_t kBlockChunks = 64;

// What products of several rows with a panel need while they are computed.
struct alignas(64) ByteScratch {
  const std::byte* numbers[kBlockChunks];
  float scales[kBlockChunks * 2 * kLanes];
  float biases[kBlockChunks * kLanes];
  std::byte bytes[kBlockChunks * kChunk * kLanes];
};

// y [rows][32] = all rows times the panel.
using ByteTiles = void(
    const PanelLayout& layout,
    const std::byte* panel,
    const ActivationRows& activations,
    ByteScratch& scratch,
    float* y);

struct ByteKernels {
  // x [32 * chunks]; `low` null: one byte per number.
  void (*quantize_row)(
      const float* x,
      int64_t chunks,
      ByteOrder order,
      int8_t* high,
      int8_t* low,
      float* scales,
      float* sums,
      int32_t* byte_sums);

  // y[0..31] = row `row` times the panel.
  void (*one_row)(
      const PanelLayout& layout,
      const std::byte* panel,
      const ActivationRows& activations,
      int64_t row,
      float* y);

  // The same bits for every row, in tiles of rows.
  ByteTiles* many_rows;
};

// The order in which byte kernels take the numbers of a matrix.
inline ByteOrder byte_order(const PanelLayout& layout) {
  return layout.bits == 4 ? ByteOrder::even_first : ByteOrder::in_order;
}

extern const ByteKernels kByteKernelsPortable;
extern const ByteKernels kByteKernelsAvx2;
extern const ByteKernels kByteKernelsAvx512;
extern const ByteKernels kByteKernelsAvx512Vnni;
extern const ByteKernels kByteKernelsDotprod;
extern const ByteKernels kByteKernelsI8mm;

}  // namespace mlxx::kernels
