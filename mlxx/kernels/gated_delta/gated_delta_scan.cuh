// The gated delta rule, token by token with the state in registers. Text that
// MLX compiles (core/custom_kernel.h).
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace mlxx_gated_delta {

// Sizes of q [B, T, HK, DK] and v [B, T, HV, DV].
struct Sizes {
  int tokens;
  int key_heads;
  int value_heads;
};

__device__ inline float sum_of_warp(float x) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) {
    x += __shfl_xor_sync(0xffffffffu, x, step);
  }
  return x;
}

// A warp has ROWS rows of one head's state [DV, DK], its lanes the columns.
// decay [B, T, HV], or [B, T, HV, DK] if PER_KEY; mask [B, T] if MASKED.
// blockIdx.y: sequence and value head.
template <typename T, int DK, int DV, int ROWS, bool PER_KEY, bool MASKED>
__device__ void scan(
    const T* q,
    const T* k,
    const T* v,
    const float* decay,
    const float* beta,
    const float* state,
    const bool* mask,
    Sizes sizes,
    T* y,
    float* new_state) {
  constexpr int kEach = (DK + 31) / 32;
  int lane = threadIdx.x & 31;
  int warp = (blockIdx.x * blockDim.x + threadIdx.x) >> 5;
  int row0 = warp * ROWS;
  if (row0 >= DV) {
    return;
  }
  int head = blockIdx.y % sizes.value_heads;
  int sequence = blockIdx.y / sizes.value_heads;
  int key_head = head / (sizes.value_heads / sizes.key_heads);
  size_t key_step = (size_t)sizes.key_heads * DK;
  size_t value_step = (size_t)sizes.value_heads * DV;
  size_t token0 = (size_t)sequence * sizes.tokens;
  q += token0 * key_step + (size_t)key_head * DK;
  k += token0 * key_step + (size_t)key_head * DK;
  v += token0 * value_step + (size_t)head * DV;
  y += token0 * value_step + (size_t)head * DV;
  beta += token0 * sizes.value_heads + head;
  decay += (token0 * sizes.value_heads + head) * (PER_KEY ? DK : 1);
  size_t at = (size_t)blockIdx.y * DV * DK;

  float s[ROWS][kEach];
#pragma unroll
  for (int r = 0; r < ROWS; ++r) {
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      int column = i * 32 + lane;
      bool inside = row0 + r < DV && column < DK;
      s[r][i] = inside ? state[at + (size_t)(row0 + r) * DK + column] : 0.0f;
    }
  }
  for (int t = 0; t < sizes.tokens; ++t) {
    float kk[kEach];
    float qq[kEach];
    float keep[kEach];
    float kq = 0;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      int column = i * 32 + lane;
      bool inside = column < DK;
      kk[i] = inside ? static_cast<float>(k[column]) : 0.0f;
      qq[i] = inside ? static_cast<float>(q[column]) : 0.0f;
      keep[i] = PER_KEY ? (inside ? decay[column] : 0.0f) : decay[0];
      kq += kk[i] * qq[i];
    }
    bool counts = !MASKED || mask[token0 + t];
    float rate = beta[0];
    float recalled[ROWS];
    float seen[ROWS];
    float value[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
      value[r] = row0 + r < DV ? static_cast<float>(v[row0 + r]) : 0.0f;
      recalled[r] = 0;
      seen[r] = 0;
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        float kept = s[r][i] * keep[i];
        s[r][i] = counts ? kept : s[r][i];
        recalled[r] += kept * kk[i];
        seen[r] += kept * qq[i];
      }
    }
    // With the state before the change d k, the change adds d (k q) to S q.
    kq = sum_of_warp(kq);
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
      recalled[r] = sum_of_warp(recalled[r]);
      seen[r] = sum_of_warp(seen[r]);
    }
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
      float change = rate * (value[r] - recalled[r]);
      if (counts) {
#pragma unroll
        for (int i = 0; i < kEach; ++i) {
          s[r][i] += change * kk[i];
        }
      }
      if (lane == r && row0 + r < DV) {
        y[row0 + r] = static_cast<T>(seen[r] + change * kq);
      }
    }
    q += key_step;
    k += key_step;
    v += value_step;
    y += value_step;
    beta += sizes.value_heads;
    decay += sizes.value_heads * (PER_KEY ? DK : 1);
  }
#pragma unroll
  for (int r = 0; r < ROWS; ++r) {
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      int column = i * 32 + lane;
      if (row0 + r < DV && column < DK) {
        new_state[at + (size_t)(row0 + r) * DK + column] = s[r][i];
      }
    }
  }
}

}  // namespace mlxx_gated_delta
