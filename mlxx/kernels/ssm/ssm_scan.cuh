// The state-space model of Mamba2, token by token with the state in registers.
// Text that MLX compiles (core/custom_kernel.h).
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace mlxx_ssm {

// Sizes of x [B, L, H, DH] and b [B, L, G, N].
struct Sizes {
  int tokens;
  int heads;
  int groups;
};

__device__ inline float sum_of_warp(float x) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) {
    x += __shfl_xor_sync(0xffffffffu, x, step);
  }
  return x;
}

// A warp has ROWS rows of one head's state [DH, N], its lanes the columns.
// steps [B, L, H]: dt after bias, softplus and limits; rate, d [H]: A and D;
// mask [B, L] if MASKED. blockIdx.y: sequence and head.
template <typename T, int DH, int N, int ROWS, bool MASKED>
__device__ void scan(
    const T* x,
    const float* rate,
    const T* b,
    const T* c,
    const float* d,
    const float* steps,
    const float* state,
    const bool* mask,
    Sizes sizes,
    T* y,
    float* new_state) {
  constexpr int kEach = (N + 31) / 32;
  int lane = threadIdx.x & 31;
  int warp = (blockIdx.x * blockDim.x + threadIdx.x) >> 5;
  int row0 = warp * ROWS;
  if (row0 >= DH) {
    return;
  }
  int head = blockIdx.y % sizes.heads;
  int sequence = blockIdx.y / sizes.heads;
  int group = head / (sizes.heads / sizes.groups);
  size_t token0 = (size_t)sequence * sizes.tokens;
  size_t x_step = (size_t)sizes.heads * DH;
  size_t b_step = (size_t)sizes.groups * N;
  x += token0 * x_step + (size_t)head * DH;
  y += token0 * x_step + (size_t)head * DH;
  b += token0 * b_step + (size_t)group * N;
  c += token0 * b_step + (size_t)group * N;
  steps += token0 * sizes.heads + head;
  size_t at = (size_t)blockIdx.y * DH * N;
  float a = rate[head];
  float skip = d[head];

  float s[ROWS][kEach];
#pragma unroll
  for (int r = 0; r < ROWS; ++r) {
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      int column = i * 32 + lane;
      bool inside = row0 + r < DH && column < N;
      s[r][i] = inside ? state[at + (size_t)(row0 + r) * N + column] : 0.0f;
    }
  }
  for (int t = 0; t < sizes.tokens; ++t) {
    float bb[kEach];
    float cc[kEach];
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      int column = i * 32 + lane;
      bb[i] = column < N ? static_cast<float>(b[column]) : 0.0f;
      cc[i] = column < N ? static_cast<float>(c[column]) : 0.0f;
    }
    bool counts = !MASKED || mask[token0 + t];
    float dt = steps[0];
    float keep = expf(dt * a);
    float value[ROWS];
    float seen[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
      value[r] = row0 + r < DH ? static_cast<float>(x[row0 + r]) : 0.0f;
      seen[r] = 0;
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        float next = keep * s[r][i] + dt * value[r] * bb[i];
        s[r][i] = counts ? next : s[r][i];
        seen[r] += s[r][i] * cc[i];
      }
    }
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
      seen[r] = sum_of_warp(seen[r]);
      if (lane == r && row0 + r < DH) {
        y[row0 + r] = static_cast<T>(seen[r] + skip * value[r]);
      }
    }
    x += x_step;
    y += x_step;
    b += b_step;
    c += b_step;
    steps += sizes.heads;
  }
#pragma unroll
  for (int r = 0; r < ROWS; ++r) {
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      int column = i * 32 + lane;
      if (row0 + r < DH && column < N) {
        new_state[at + (size_t)(row0 + r) * N + column] = s[r][i];
      }
    }
  }
}

}  // namespace mlxx_ssm
