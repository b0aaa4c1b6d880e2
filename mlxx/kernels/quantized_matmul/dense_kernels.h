#pragma once

#include "mlxx/kernels/quantized_matmul/panel_kernels.h"

// Products with panels of dense numbers, compiled once per instruction set like
// the rest of panel_kernels.h. A row's bits do not depend on how many rows
// there are.
namespace mlxx::kernels {

struct DenseKernels {
  // y [rows][32] = x [rows, in] times the panel.
  void (*many_rows)(
      const PanelLayout& layout,
      const std::byte* panel,
      const float* x,
      int64_t rows,
      float* y);

  // The other two are null where no instruction multiplies bfloat16 numbers.
  // x [count], a multiple of 32, to the nearest bfloat16, ties to even.
  void (*round_row)(const float* x, int64_t count, uint16_t* rounded);

  // The same products of bfloat16 numbers, summed in float32.
  void (*many_rounded_rows)(
      const PanelLayout& layout,
      const std::byte* panel,
      const uint16_t* x,
      int64_t rows,
      float* y);
};

extern const DenseKernels kDenseKernelsPortable;
extern const DenseKernels kDenseKernelsAvx2;
extern const DenseKernels kDenseKernelsAvx512;
extern const DenseKernels kDenseKernelsAvx512Bf16;

}  // namespace mlxx::kernels
