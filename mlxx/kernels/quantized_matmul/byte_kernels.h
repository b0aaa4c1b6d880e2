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
  // One signed byte, x = scale * high: error about 4e-3 of it.
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
  // [rows, in / 16]: the sum of the integers of each half chunk; null where no
  // matrix of E2M1 codes asks.
  const int32_t* half_sums = nullptr;
};

// y [rows][32] = all rows times a panel that is not unpacked, with the same
// bits as one row by itself: a batch of decoding sequences. False, and nothing
// done, for numbers that it has no code for.
using FewRows = bool(
    const PanelLayout& layout,
    const std::byte* panel,
    const ActivationRows& activations,
    float* y);

// Up to so many rows; more are worth unpacking for.
inline constexpr int64_t kMostFewRows = 48;

struct ByteKernels {
  // x [32 * chunks]; `low` null: one byte per number; half_sums null: not
  // wanted.
  void (*quantize_row)(
      const float* x,
      int64_t chunks,
      ByteOrder order,
      int8_t* high,
      int8_t* low,
      float* scales,
      float* sums,
      int32_t* half_sums);

  // y[0..31] = row `row` times the panel.
  void (*one_row)(
      const PanelLayout& layout,
      const std::byte* panel,
      const ActivationRows& activations,
      int64_t row,
      float* y);

  FewRows* few_rows;

  // The quantized numbers of chunks [from, to) as bytes: q [chunk][8][32
  // lanes][4 inputs], in the layout's byte order; their scales
  // [chunk][32 lanes], of half groups [chunk][2 halves][32 lanes], and biases
  // [chunk][32 lanes]. An E2M1 code becomes twice its value plus 12, with half
  // its scale.
  void (*unpack)(
      const PanelLayout& layout,
      const std::byte* panel,
      int64_t from,
      int64_t to,
      uint8_t* q,
      float* scales,
      float* biases);

  // Adds to y [rows, 32 of ldy] (or starts it, if `first`) the products of rows
  // first_row ... with `chunks` unpacked chunks, the first of which is chunk
  // `from` of the activations.
  void (*many_rows)(
      const PanelLayout& layout,
      const uint8_t* q,
      const float* scales,
      const float* biases,
      int64_t from,
      int64_t chunks,
      const ActivationRows& activations,
      int64_t first_row,
      int64_t rows,
      bool first,
      float* y,
      int64_t ldy);
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
