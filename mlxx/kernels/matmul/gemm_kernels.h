#pragma once

#include <cstddef>
#include <cstdint>

#include "mlxx/kernels/quantized_matmul/panel_kernels.h"

// What the source compiled once per instruction set and the code around it
// agree on. That source includes no header of the standard library but those
// of types.
namespace mlxx::kernels {

// Terms of a sum in registers; what is beyond is added block by block.
inline constexpr int64_t kGemmDepth = 512;
// Columns of a block of the right matrix that lie together.
inline constexpr int64_t kGemmLanes = 32;

// A matrix in memory: float32, float16 or bfloat16. One of the strides (in
// numbers) is 1.
struct GemmOperand {
  const void* data;
  NumberType type;
  int64_t row_stride;
  int64_t column_stride;
};

// Rows [row, row + rows) and columns [column, column + columns) of an operand.
struct GemmRegion {
  int64_t row;
  int64_t rows;
  int64_t column;
  int64_t columns;
};

// y [rows, lanes] = left [rows, depth] times right [depth, lanes], or added to
// it unless `first`.
struct GemmTiles {
  const float* left;  // from pack_left
  bool left_by_rows;
  int64_t rows;
  const float* right;  // rows of at least `lanes` numbers, `ldr` apart
  int64_t ldr;
  int64_t depth;  // at most kGemmDepth
  int64_t lanes;  // at most kGemmLanes; `right` is readable to a whole vector
  bool first;
  float* y;
  int64_t ldy;
};

// A number of the result is the sum over blocks of kGemmDepth, in order, of
// sums in order: the same bits whatever the other rows and columns are.
struct GemmKernels {
  // Rows of a tile in registers: what pack_left() makes is in pieces of them.
  int64_t tile_rows;

  // A region of the left matrix, at most kGemmDepth columns, as float32:
  // pieces of tile_rows * kGemmDepth numbers, each [tile_rows][kGemmDepth] if
  // columns are adjacent in memory ("by rows"), else [kGemmDepth][tile_rows].
  void (*pack_left)(const GemmOperand& a, const GemmRegion& at, float* to);

  // A region of the right matrix, at most kGemmLanes columns, as float32
  // [rows][kGemmLanes]; columns past the last are zero.
  void (*pack_right)(const GemmOperand& b, const GemmRegion& at, float* to);

  // Unpacked chunks of panels (PanelKernels::unpack) as the weights of 32
  // outputs: to + chunk * stride is [32 outputs][32 inputs].
  void (*dequantize_chunks)(
      const float* q,
      const float* scales,
      const float* biases,
      int64_t chunks,
      float* to,
      int64_t stride);

  void (*multiply)(const GemmTiles& tiles);

  // `count` numbers as float16 or bfloat16: the nearest one, ties to even, past
  // the range infinite.
  void (*round)(const float* from, int64_t count, NumberType type, void* to);
};

// One per compiled variant; gemm_kernels() picks.
extern const GemmKernels kGemmKernelsPortable;
extern const GemmKernels kGemmKernelsAvx2;
extern const GemmKernels kGemmKernelsAvx512;

}  // namespace mlxx::kernels
