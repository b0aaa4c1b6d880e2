#pragma once

#include <cstdint>

// What the arithmetic units of one core reach with the instructions that the
// kernels use, compiled once per instruction set.
namespace mlxx::benchmarks {

struct PeakKernels {
  // Operations (a product and a sum are two) in `rounds` rounds of
  // independent multiply_add; adds what they gave to *sink.
  int64_t (*multiply_adds)(int64_t rounds, float* sink);
  // The same for products of unsigned and signed bytes.
  int64_t (*byte_products)(int64_t rounds, float* sink);
};

extern const PeakKernels kPeakKernelsPortable;
extern const PeakKernels kPeakKernelsAvx2;
extern const PeakKernels kPeakKernelsAvx512;
extern const PeakKernels kPeakKernelsAvx512Vnni;

}  // namespace mlxx::benchmarks
