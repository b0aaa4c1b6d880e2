#pragma once

// What attention of a step takes, and its queries and new keys: normed, rotated
// and in shared memory.

#include "mlxx/kernels/decode_step/cuda/decoder_cuda.h"
#include "mlxx/kernels/decode_step/cuda/device_math.cuh"

namespace mlxx::kernels::cuda {

inline constexpr int kGroupTokens = 2048;
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

// A head of queries or the new key, normed and rotated: a warp's work, whose
// lanes have pairs of numbers that are turned together. In two parts, so that
// several heads' loads are under way at once.
template <int D>
struct HeadPairs {
  static constexpr int kOwn = (D / 2 + 31) / 32;  // pairs of a lane
  float2 turn[kOwn];
  int first[kOwn];  // of D numbers
  int second[kOwn];

  __device__ __forceinline__ void load(const Attention& p, int row) {
    const float2* turns = p.turns + static_cast<size_t>(row) * p.turns_stride;
    const int half = p.rotated / 2;
#pragma unroll
    for (int i = 0; i < kOwn; i++) {
      const int j = (threadIdx.x & 31) + 32 * i;
      const bool apart = j < half && !p.pairs;
      first[i] = apart ? j : 2 * j;
      second[i] = apart ? j + half : 2 * j + 1;
      turn[i] = j < half ? turns[j] : make_float2(1, 0);
    }
  }
  static __device__ __forceinline__ bool is_on(int i) {
    return D % 64 == 0 || (threadIdx.x & 31) + 32 * i < D / 2;
  }
};

template <int D>
struct PlacedHead {
  static constexpr int kOwn = HeadPairs<D>::kOwn;
  float a[kOwn];
  float b[kOwn];

  __device__ __forceinline__ void load(
      const bf16* from,
      const HeadPairs<D>& pairs) {
#pragma unroll
    for (int i = 0; i < kOwn; i++) {
      const bool on = HeadPairs<D>::is_on(i);
      a[i] = on ? __bfloat162float(from[pairs.first[i]]) : 0.f;
      b[i] = on ? __bfloat162float(from[pairs.second[i]]) : 0.f;
    }
  }
  __device__ __forceinline__ void place(
      const HeadPairs<D>& pairs,
      const HeadNorm& norm,
      int head,
      float factor,
      bf16* to) {
    float scale = factor;
    const float* weight = nullptr;
    if (norm.weight) {
      float sum = 0;
#pragma unroll
      for (int i = 0; i < kOwn; i++) {
        sum += a[i] * a[i] + b[i] * b[i];
      }
      scale *= rsqrtf(sum_of_warp(sum) / D + norm.eps);
      weight = norm.weight + (norm.own ? head * D : 0);
    }
#pragma unroll
    for (int i = 0; i < kOwn; i++) {
      if (HeadPairs<D>::is_on(i)) {
        float x = a[i] * scale;
        float y = b[i] * scale;
        if (weight) {
          x *= weight[pairs.first[i]];
          y *= weight[pairs.second[i]];
        }
        const float2 by = pairs.turn[i];
        to[pairs.first[i]] = __float2bfloat16(x * by.x - y * by.y);
        to[pairs.second[i]] = __float2bfloat16(y * by.x + x * by.y);
      }
    }
  }
};

}  // namespace mlxx::kernels::cuda
