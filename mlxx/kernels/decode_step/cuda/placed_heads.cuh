#pragma once

// What attention of a step takes, and its queries and new keys: normed, rotated
// and in shared memory.

#include "mlxx/kernels/decode_step/cuda/decoder_cuda.h"
#include "mlxx/kernels/decode_step/cuda/device_math.cuh"

namespace mlxx::kernels::cuda {

inline constexpr int kGroupTokens = 4096;
inline constexpr int kUnit = 16;       // tokens
inline constexpr int kHeadTile = 8;    // query heads of a block
inline constexpr int kMostSplits = 8;  // blocks of a cluster
inline constexpr float kLog2E = 1.44269504f;

struct Attention {
  const bf16* qkv = nullptr;  // [rows, (heads + 2 kv_heads) * D]
  void* const* blocks = nullptr;
  int blocks_stride = 0;
  const int32_t* lengths = nullptr;
  size_t keys_at = 0;  // bytes, of the layer in a block
  int heads = 0;
  int kv_heads = 0;
  const float2* turns = nullptr;  // [rows, turns_stride]: cosine, sine
  int turns_stride = 0;
  int rotated = 0;  // numbers of a head
  bool pairs = false;
  HeadNorm q_norm;
  HeadNorm k_norm;
  float query_beta = 0;
  int query_original_length = 1;
  float scale = 1;
  float softcap = 0;
  const float* sinks = nullptr;
  int window = 0;
  Rows out;
  int splits = 1;
  int groups = 1;
  float* group_sums = nullptr;     // [rows, heads, groups, D]
  float2* group_states = nullptr;  // [rows, heads, groups]: maximum, sum
};

// A head of queries or the new key, normed and rotated, as a warp's work in two
// parts, so that several heads' loads are under way at once.
template <int D>
struct HeadTurns {
  static constexpr int kOwn = (D + 31) / 32;  // numbers of a lane
  float2 turn[kOwn];

  static __device__ __forceinline__ int pair_of(const Attention& p, int d) {
    const int half = p.rotated / 2;
    return p.pairs ? d >> 1 : d < half ? d : d - half;
  }
  __device__ __forceinline__ void load(const Attention& p, int row) {
    const float2* turns = p.turns + static_cast<size_t>(row) * p.turns_stride;
#pragma unroll
    for (int i = 0; i < kOwn; i++) {
      int d = (threadIdx.x & 31) + 32 * i;
      turn[i] = d < p.rotated ? turns[pair_of(p, d)] : make_float2(1, 0);
    }
  }
};

template <int D>
struct PlacedHead {
  static constexpr int kOwn = (D + 31) / 32;
  float x[kOwn];

  __device__ __forceinline__ void load(const bf16* from) {
#pragma unroll
    for (int i = 0; i < kOwn; i++) {
      int d = (threadIdx.x & 31) + 32 * i;
      x[i] = D % 32 == 0 || d < D ? __bfloat162float(from[d]) : 0.f;
    }
  }
  // `scratch`: D floats of the warp.
  __device__ __forceinline__ void place(
      const Attention& p,
      const HeadTurns<D>& turns,
      const HeadNorm& norm,
      int head,
      float factor,
      float* scratch,
      bf16* to) {
    const int lane = threadIdx.x & 31;
    float scale = factor;
    if (norm.weight) {
      float sum = 0;
#pragma unroll
      for (int i = 0; i < kOwn; i++) {
        sum += x[i] * x[i];
      }
      scale *= rsqrtf(sum_of_warp(sum) / D + norm.eps);
    }
    const float* weight =
        norm.weight ? norm.weight + (norm.own ? head * D : 0) : nullptr;
#pragma unroll
    for (int i = 0; i < kOwn; i++) {
      int d = lane + 32 * i;
      if (d < D) {
        x[i] *= weight ? scale * weight[d] : scale;
        scratch[d] = x[i];
      }
    }
    __syncwarp();
    const int half = p.rotated / 2;
#pragma unroll
    for (int i = 0; i < kOwn; i++) {
      int d = lane + 32 * i;
      if (d < D) {
        float v = x[i];
        if (d < p.rotated) {
          bool second = p.pairs ? d & 1 : d >= half;
          float other =
              scratch[p.pairs ? d ^ 1 : (second ? d - half : d + half)];
          v = v * turns.turn[i].x + (second ? other : -other) * turns.turn[i].y;
        }
        to[d] = __float2bfloat16(v);
      }
    }
    __syncwarp();
  }
};

}  // namespace mlxx::kernels::cuda
