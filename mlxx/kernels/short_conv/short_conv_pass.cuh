// A short causal convolution of each channel. Text that MLX compiles
// (core/custom_kernel.h).
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace mlxx_short_conv {

// Input `at` of a channel: the W - 1 of the state, then those of x.
template <typename T, int W>
__device__ float
input(const T* x, const T* state, int sequence, int at, int L, int C, int c) {
  constexpr int kKept = W - 1;
  return static_cast<float>(
      at < kKept ? state[((size_t)sequence * kKept + at) * C + c]
                 : x[((size_t)sequence * L + at - kKept) * C + c]);
}

// A thread makes one number of y [B, L, C], or past these one of the new state
// [B, W - 1, C]. weight [C, W, 1], bias [C] if BIASED, lengths [B] if PADDED.
template <typename T, int W, bool BIASED, bool SILU, bool PADDED>
__device__ void pass(
    const T* x,
    const T* weight,
    const T* bias,
    const T* state,
    const int* lengths,
    int L,
    int C,
    T* y,
    T* new_state) {
  int c = blockIdx.x * blockDim.x + threadIdx.x;
  int t = blockIdx.y;  // 0 .. L + W - 2
  int sequence = blockIdx.z;
  if (c >= C) {
    return;
  }
  if (t < L) {
    float sum = 0;
#pragma unroll
    for (int j = 0; j < W; ++j) {
      sum += static_cast<float>(weight[c * W + j]) *
          input<T, W>(x, state, sequence, t + j, L, C, c);
    }
    if (BIASED) {
      sum += static_cast<float>(bias[c]);
    }
    y[((size_t)sequence * L + t) * C + c] =
        static_cast<T>(SILU ? sum / (1.0f + expf(-sum)) : sum);
    return;
  }
  int end = L;
  if (PADDED) {
    end = max(0, min(lengths[sequence], L));
  }
  int i = t - L;
  new_state[((size_t)sequence * (W - 1) + i) * C + c] =
      static_cast<T>(input<T, W>(x, state, sequence, end + i, L, C, c));
}

}  // namespace mlxx_short_conv
