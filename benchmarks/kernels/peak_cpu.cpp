// Compiled once per instruction set, with MLXX_PEAK_KERNELS naming the table of
// that variant.
#include "benchmarks/kernels/peak_kernels.h"
#include "mlxx/kernels/integer_lanes.h"

namespace mlxx::benchmarks {
namespace {

// As many sums as hide the latency of one, and leave registers for operands.
constexpr int kSums = 10;

int64_t multiply_adds(int64_t rounds, float* sink) {
  // All different, or they would become one.
  Floats sums[kSums];
#pragma GCC unroll 16
  for (int i = 0; i < kSums; ++i) {
    sums[i] = broadcast(*sink + static_cast<float>(i));
  }
  Floats a = broadcast(*sink);
  Floats b = broadcast(0.5f);
  for (int64_t round = 0; round < rounds; ++round) {
    // Hidden from the optimizer, or the loop would become one product.
    asm volatile("" : "+m"(a));
#pragma GCC unroll 16
    for (int i = 0; i < kSums; ++i) {
      sums[i] = multiply_add(a, b, sums[i]);
    }
  }
  // Unrolled as well, or the sums would live in memory.
#pragma GCC unroll 16
  for (int i = 0; i < kSums; ++i) {
    *sink += sums[i][0];
  }
  return rounds * kSums * kWidth * 2;
}

int64_t byte_products(int64_t rounds, float* sink) {
  Ints sums[kSums];
#pragma GCC unroll 16
  for (int i = 0; i < kSums; ++i) {
    sums[i] = Ints{} + (static_cast<int32_t>(*sink) + i);
  }
  Words a = Words{} + 0x01020304u;
  Words b = Words{} + static_cast<uint32_t>(*sink);
  for (int64_t round = 0; round < rounds; ++round) {
    asm volatile("" : "+m"(a));
#pragma GCC unroll 16
    for (int i = 0; i < kSums; ++i) {
      sums[i] = add_byte_products<true>(sums[i], a, b);
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < kSums; ++i) {
    *sink += static_cast<float>(sums[i][0]);
  }
  return rounds * kSums * kWidth * 4 * 2;
}

}  // namespace

extern const PeakKernels MLXX_PEAK_KERNELS;
const PeakKernels MLXX_PEAK_KERNELS = {multiply_adds, byte_products};

}  // namespace mlxx::benchmarks
