#pragma once

#include <cstdint>

// What layers of a decoder compute on rows of float32 beyond row_kernels.h,
// compiled once per instruction set from layer_kernels_cpu.cpp, which includes
// no other header. A number of the result depends on its row alone.
namespace mlxx::kernels {

// y = function(x) * factor; without a factor (null) function(x).
using ActivationKernel =
    void (*)(const float* x, const float* factor, int64_t n, float* y);

struct LayerKernels {
  // y = (x - mean(x)) / sqrt(variance(x) + eps) * weight + bias; without a bias
  // if it is null. y may be x.
  void (*layer_norm)(
      const float* x,
      const float* weight,
      const float* bias,
      float eps,
      int64_t n,
      float* y);
  ActivationKernel silu;
  ActivationKernel gelu;
  ActivationKernel gelu_tanh;
  ActivationKernel relu_squared;
  // y = cap * tanh(x / cap). y may be x.
  void (*softcap)(const float* x, float cap, int64_t n, float* y);
  // z[r] = a[r] x for `rows` rows of `a` [rows, n].
  void (*dot_rows)(
      const float* a,
      int64_t rows,
      const float* x,
      int64_t n,
      float* z);
  // y += sum over r of z[r] * b[r], rows of `b` [rows, n]; n is a multiple of
  // 16.
  void (*add_rows)(
      const float* z,
      int64_t rows,
      const float* b,
      int64_t n,
      float* y);
};

extern const LayerKernels kLayerKernelsPortable;
extern const LayerKernels kLayerKernelsAvx2;
extern const LayerKernels kLayerKernelsAvx512;

}  // namespace mlxx::kernels
