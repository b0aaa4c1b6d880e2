#pragma once

#include <functional>

#include "mlxx/kernels/matmul/gemm_kernels.h"
#include "mlxx/kernels/matmul/gemm_memory.h"
#include "mlxx/kernels/select.h"

namespace mlxx::kernels {

// What computes.
struct GemmMachine {
  const GemmKernels* kernels;
  std::shared_ptr<ThreadPool> threads;
  std::shared_ptr<GemmMemory> memory;
};

GemmMachine gemm_machine(const Selection& selection);

// Rows [row, row + rows) of the right matrix, rows <= kGemmDepth, of its
// columns [32 * first, 32 * last): for each 32 of them `stride` numbers further
// in `to`, float32 [rows][32], zero past the last column.
struct RightBlock {
  int64_t row;
  int64_t rows;
  int64_t first;
  int64_t last;
  float* to;
  int64_t stride;
};

// The right matrix of a product: numbers in memory, or made block by block.
struct GemmRight {
  // Called on several threads, for different columns.
  std::function<void(const RightBlock&)> pack;
  // Float32 rows of `stride` numbers where they are; null: packed.
  const float* rows = nullptr;
  int64_t stride = 0;
};

// Numbers in memory, `columns` of them in a row. `machine` must outlive it.
GemmRight right_operand(
    const GemmOperand& b,
    int64_t columns,
    const GemmMachine& machine);

struct GemmShape {
  int64_t rows;
  int64_t columns;
  int64_t depth;
};

// Where a product goes, row by row: float32, or float16 or bfloat16, to which
// sums are rounded once.
struct GemmResult {
  void* data;
  NumberType type;
};

// y [rows, columns] = a [rows, depth] times b [depth, columns], sums in
// float32. A number's terms are added in an order that depends on `depth`
// alone: neither threads nor other rows change its bits. Besides the result it
// takes 2 MiB, 100 KiB per thread, and 8 MiB to round
// from, of the machine's memory.
// Method: blocks packed for the caches and a tile of sums in registers, as in
// Goto and van de Geijn, "Anatomy of High-Performance Matrix Multiplication".
void gemm(
    const GemmShape& shape,
    const GemmOperand& a,
    const GemmRight& b,
    const GemmResult& y,
    const GemmMachine& machine);

}  // namespace mlxx::kernels
