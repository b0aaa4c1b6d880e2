#pragma once

// One new token of each row sees the keys and values of its row. Tensor cores
// take 16 tokens by 8 query heads of one key head at a time, straight from the
// blocks into registers. The blocks of a cluster share the tokens, in units of
// 16 dealt out in turn, and add up in each other's memory; groups of
// kGroupTokens tokens are added up by a kernel of their own. What a row's sums
// are made of depends on its length alone.
// Online softmax: Milakov and Gimelshein, 2018; splits: Dao et al.,
// Flash-Decoding, 2023.

#include <cooperative_groups.h>

#include "mlxx/kernels/decode_step/cuda/placed_heads.cuh"

namespace mlxx::kernels::cuda {

__device__ __forceinline__ unsigned transpose(unsigned v) {
  unsigned r;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0,%1;"
               : "=r"(r)
               : "r"(v));
  return r;
}
__device__ __forceinline__ unsigned word(const uint4& v, int i) {
  return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}

// 16 tokens' keys and values as a lane (g, t) has them: keys of tokens g and
// g + 8, numbers 8t..8t + 7 of each 32; values of tokens 2t, 2t + 1, 2t + 8,
// 2t + 9, numbers 8g..8g + 7 of each 64. What is left of D is 16 or 32 numbers.
template <int D>
struct KvUnit {
  static constexpr int kKeys = D / 32;
  static constexpr int kKeyRest = D % 32;  // 0 or 16
  static constexpr int kValues = D / 64;
  static constexpr int kValueRest = D % 64;  // 0, 16 or 32
  uint4 keys[2][kKeys];
  uint2 key_rest[2];
  uint4 values[4][kValues];
  uint2 value_rest[4];

  __device__ __forceinline__ void load_key(int i, const bf16* p, int t) {
#pragma unroll
    for (int k = 0; k < kKeys; k++) {
      keys[i][k] = *reinterpret_cast<const uint4*>(p + 32 * k + 8 * t);
    }
    if constexpr (kKeyRest != 0) {
      key_rest[i] = *reinterpret_cast<const uint2*>(p + 32 * kKeys + 4 * t);
    }
  }
  __device__ __forceinline__ void load_value(int i, const bf16* p, int g) {
#pragma unroll
    for (int k = 0; k < kValues; k++) {
      values[i][k] = *reinterpret_cast<const uint4*>(p + 64 * k + 8 * g);
    }
    if constexpr (kValueRest == 32) {
      value_rest[i] = *reinterpret_cast<const uint2*>(p + 64 * kValues + 4 * g);
    } else if constexpr (kValueRest == 16) {
      value_rest[i].x =
          *reinterpret_cast<const unsigned*>(p + 64 * kValues + 2 * g);
    }
  }
  __device__ __forceinline__ void clear_key(int i) {
#pragma unroll
    for (int k = 0; k < kKeys; k++) {
      keys[i][k] = make_uint4(0, 0, 0, 0);
    }
    key_rest[i] = make_uint2(0, 0);
  }
  __device__ __forceinline__ void clear_value(int i) {
#pragma unroll
    for (int k = 0; k < kValues; k++) {
      values[i][k] = make_uint4(0, 0, 0, 0);
    }
    value_rest[i] = make_uint2(0, 0);
  }
};

template <int D, int WARPS>
__global__ void __launch_bounds__(WARPS * 32, D <= 128 ? 16 / WARPS : 8 / WARPS)
    decode_attention(const __grid_constant__ Attention p) {
  namespace cg = cooperative_groups;
  using Unit = KvUnit<D>;
  constexpr int kTiles = D / 16;  // of 16 numbers of a value
  constexpr int kPad = 8;
  __shared__ __align__(16) bf16 queries[kHeadTile][D + kPad];
  __shared__ __align__(16) bf16 newest_key[D];
  // Before the sums, room for a head that is being placed.
  __shared__ float warp_sums[WARPS][kHeadTile][D];
  __shared__ float2 warp_states[WARPS][kHeadTile];
  __shared__ float received[kHeadTile * D];
  __shared__ float2 received_states[kMostSplits][kHeadTile];

  const int lane = threadIdx.x & 31;
  const int warp = threadIdx.x >> 5;
  const int g = lane >> 2;
  const int t = lane & 3;
  const int splits = p.splits;
  const int split = blockIdx.x % splits;
  const int group = blockIdx.x / splits;
  const int kv = blockIdx.y % p.kv_heads;
  const int head_tile = blockIdx.y / p.kv_heads;
  const int row = blockIdx.z;
  const int per_kv = p.heads / p.kv_heads;
  const int head = kv * per_kv + head_tile * kHeadTile;
  const int count = min(kHeadTile, per_kv - head_tile * kHeadTile);

  const int length = p.lengths[row];
  const int seen = p.window > 0 ? max(0, length + 1 - p.window) : 0;
  const int begin = max(seen, group * kGroupTokens);
  const int end = min(length + 1, (group + 1) * kGroupTokens);
  if (begin >= end) {
    let_next_start();
    wait_for_previous();
    if (split == 0 && threadIdx.x < count) {
      p.group_states
          [(static_cast<size_t>(row) * p.heads + head + threadIdx.x) *
               p.groups +
           group] = make_float2(-INFINITY, 0);
    }
    return;
  }
#if __CUDA_ARCH__ >= 900
  cg::cluster_group cluster = cg::this_cluster();
  if (splits > 1) {
    asm volatile("barrier.cluster.arrive.relaxed.aligned;");
  }
#endif
  void* const* blocks = p.blocks + static_cast<size_t>(row) * p.blocks_stride;
  const size_t values_at = static_cast<size_t>(p.kv_heads) * kKvBlockLength * D;
  auto keys_of = [&](int token) {
    const char* block = static_cast<const char*>(blocks[token >> 6]);
    return const_cast<bf16*>(reinterpret_cast<const bf16*>(block + p.keys_at)) +
        (static_cast<size_t>(kv) * kKvBlockLength + (token & 63)) * D;
  };
  const int first_unit = begin / kUnit;
  const int last_unit = (end - 1) / kUnit;
  Unit unit;
  auto load_keys = [&](int u) {
    const bf16* keys = keys_of(u * kUnit);
#pragma unroll
    for (int i = 0; i < 2; i++) {
      int at = g + 8 * i;
      int token = u * kUnit + at;
      if (token < end && token != length) {
        unit.load_key(i, keys + at * D, t);
      } else {
        unit.clear_key(i);
      }
    }
  };
  auto load_values = [&](int u) {
    const bf16* values = keys_of(u * kUnit) + values_at;
#pragma unroll
    for (int i = 0; i < 4; i++) {
      int at = 2 * t + (i & 1) + (i >> 1) * 8;
      int token = u * kUnit + at;
      if (token < end && token != length) {
        unit.load_value(i, values + at * D, g);
      } else {
        unit.clear_value(i);
      }
    }
  };
  const int stride = splits * WARPS;
  int u = first_unit + split * WARPS + warp;
  if (u <= last_unit) {
    load_keys(u);
    load_values(u);
  }
  let_next_start();
  wait_for_previous();

  const bf16* in =
      p.qkv + static_cast<size_t>(row) * (p.heads + 2 * p.kv_heads) * D;
  const bf16* newest_value =
      in + static_cast<size_t>(p.heads + p.kv_heads + kv) * D;
  const bool has_newest =
      length < end && (length / kUnit - first_unit) % stride / WARPS == split;
  float factor = 1;
  if (p.query_beta != 0) {
    factor += p.query_beta *
        log1pf(static_cast<float>(length / p.query_original_length));
  }
  // Job h is head h of the tile; the last one is the new key.
  constexpr int kJobs = (kHeadTile + WARPS) / WARPS;
  HeadTurns<D> turns;
  turns.load(p, row);
  PlacedHead<D> placed[kJobs];
#pragma unroll
  for (int i = 0; i < kJobs; i++) {
    int h = warp + i * WARPS;
    if (h < count) {
      placed[i].load(in + static_cast<size_t>(head + h) * D);
    } else if (h == kHeadTile && has_newest) {
      placed[i].load(in + static_cast<size_t>(p.heads + kv) * D);
    }
  }
#pragma unroll
  for (int i = 0; i < kJobs; i++) {
    int h = warp + i * WARPS;
    float* scratch = warp_sums[warp][0];
    if (h < count) {
      placed[i]
          .place(p, turns, p.q_norm, head + h, factor, scratch, queries[h]);
    } else if (h < kHeadTile) {
      for (int d = lane; d < D; d += 32) {
        queries[h][d] = __float2bfloat16(0.f);
      }
    } else if (h == kHeadTile && has_newest) {
      placed[i].place(p, turns, p.k_norm, kv, 1.f, scratch, newest_key);
    }
  }
  __syncthreads();
  if (has_newest && head_tile == 0) {
    bf16* keys = keys_of(length);
    for (int d = threadIdx.x; d < D; d += WARPS * 32) {
      keys[d] = newest_key[d];
      keys[values_at + d] = newest_value[d];
    }
  }

  uint4 q[Unit::kKeys];
  uint2 q_rest = make_uint2(0, 0);
#pragma unroll
  for (int k = 0; k < Unit::kKeys; k++) {
    q[k] = *reinterpret_cast<const uint4*>(&queries[g][32 * k + 8 * t]);
  }
  if constexpr (Unit::kKeyRest != 0) {
    q_rest =
        *reinterpret_cast<const uint2*>(&queries[g][32 * Unit::kKeys + 4 * t]);
  }
  float out[kTiles][4] = {};
  float most[2] = {-INFINITY, -INFINITY};  // of heads 2t, 2t + 1
  float total[2] = {0, 0};                 // of this lane's tokens
  for (; u <= last_unit; u += stride) {
    if (u == length / kUnit) {
      int at = length % kUnit;
#pragma unroll
      for (int i = 0; i < 2; i++) {
        if (g + 8 * i == at) {
          unit.load_key(i, newest_key, t);
        }
      }
#pragma unroll
      for (int i = 0; i < 4; i++) {
        if (2 * t + (i & 1) + (i >> 1) * 8 == at) {
          unit.load_value(i, newest_value, g);
        }
      }
    }
    float c[2][4] = {};
#pragma unroll
    for (int k = 0; k < Unit::kKeys; k++) {
      const uint4& a = unit.keys[0][k];
      const uint4& b = unit.keys[1][k];
      const unsigned low[4] = {a.x, b.x, a.y, b.y};
      const unsigned high[4] = {a.z, b.z, a.w, b.w};
      mma(c[0], low, q[k].x, q[k].y);
      mma(c[1], high, q[k].z, q[k].w);
    }
    if constexpr (Unit::kKeyRest != 0) {
      const uint2& a = unit.key_rest[0];
      const uint2& b = unit.key_rest[1];
      const unsigned rest[4] = {a.x, b.x, a.y, b.y};
      mma(c[0], rest, q_rest.x, q_rest.y);
    }
    const bool more = u + stride <= last_unit;
    if (more) {
      load_keys(u + stride);
    }
    // s[i]: token g + 8 (i / 2), head 2t + i % 2
    float s[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
      int token = u * kUnit + g + (i >> 1) * 8;
      s[i] = (c[0][i] + c[1][i]) * p.scale;
      if (p.softcap > 0) {
        s[i] = p.softcap * tanhf(s[i] / p.softcap);
      }
      s[i] = token >= begin && token < end ? s[i] * kLog2E : -INFINITY;
    }
    float weight[4];
#pragma unroll
    for (int h = 0; h < 2; h++) {
      float now = fmaxf(s[h], s[h + 2]);
      now = fmaxf(now, __shfl_xor_sync(~0u, now, 4));
      now = fmaxf(now, __shfl_xor_sync(~0u, now, 8));
      now = fmaxf(now, __shfl_xor_sync(~0u, now, 16));
      now = fmaxf(now, most[h]);
      // A unit always has a token that is seen.
      float shrink = exp2f(most[h] - now);
      most[h] = now;
      weight[h] = exp2f(s[h] - now);
      weight[h + 2] = exp2f(s[h + 2] - now);
      total[h] = total[h] * shrink + (weight[h] + weight[h + 2]);
#pragma unroll
      for (int i = 0; i < kTiles; i++) {
        out[i][h] *= shrink;
        out[i][h + 2] *= shrink;
      }
    }
    const unsigned b0 = transpose(pack_pair(weight[0], weight[1]));
    const unsigned b1 = transpose(pack_pair(weight[2], weight[3]));
#pragma unroll
    for (int k = 0; k < Unit::kValues; k++) {
#pragma unroll
      for (int j = 0; j < 4; j++) {
        unsigned v[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
          v[i] = word(unit.values[i][k], j);
        }
        const unsigned a[4] = {
            __byte_perm(v[0], v[1], 0x5410),
            __byte_perm(v[0], v[1], 0x7632),
            __byte_perm(v[2], v[3], 0x5410),
            __byte_perm(v[2], v[3], 0x7632)};
        mma(out[4 * k + j], a, b0, b1);
      }
    }
#pragma unroll
    for (int j = 0; j < Unit::kValueRest / 16; j++) {
      unsigned v[4];
#pragma unroll
      for (int i = 0; i < 4; i++) {
        v[i] = j ? unit.value_rest[i].y : unit.value_rest[i].x;
      }
      const unsigned a[4] = {
          __byte_perm(v[0], v[1], 0x5410),
          __byte_perm(v[0], v[1], 0x7632),
          __byte_perm(v[2], v[3], 0x5410),
          __byte_perm(v[2], v[3], 0x7632)};
      mma(out[4 * Unit::kValues + j], a, b0, b1);
    }
    if (more) {
      load_values(u + stride);
    }
  }

#pragma unroll
  for (int h = 0; h < 2; h++) {
    float v = total[h];
    v += __shfl_xor_sync(~0u, v, 4);
    v += __shfl_xor_sync(~0u, v, 8);
    v += __shfl_xor_sync(~0u, v, 16);
    if (g == 0) {
      warp_states[warp][2 * t + h] = make_float2(most[h], v);
    }
#pragma unroll
    for (int i = 0; i < kTiles; i++) {
      int d = i < 4 * Unit::kValues ? i / 4 * 64 + 8 * g + 2 * (i % 4)
                                    : 64 * Unit::kValues +
              Unit::kValueRest / 8 * g + 2 * (i - 4 * Unit::kValues);
      *reinterpret_cast<float2*>(&warp_sums[warp][2 * t + h][d]) =
          make_float2(out[i][h], out[i][h + 2]);
    }
  }
  __syncthreads();
  // Each block of the cluster ends a share of every head's numbers; a warp
  // joins whole heads.
  const int share = D / splits;
  auto shrink_to = [](float most, float now) {
    return most == -INFINITY ? 0.f : exp2f(most - now);
  };
#if __CUDA_ARCH__ >= 900
  if (splits > 1) {
    asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
  }
#endif
  for (int h = warp; h < count; h += WARPS) {
    float now = -INFINITY;
#pragma unroll
    for (int i = 0; i < WARPS; i++) {
      now = fmaxf(now, warp_states[i][h].x);
    }
    float shrink[WARPS];
    float weights = 0;
#pragma unroll
    for (int i = 0; i < WARPS; i++) {
      shrink[i] = shrink_to(warp_states[i][h].x, now);
      weights += warp_states[i][h].y * shrink[i];
    }
#pragma unroll
    for (int d = lane; d < D; d += 32) {
      float sum = 0;
#pragma unroll
      for (int i = 0; i < WARPS; i++) {
        sum += warp_sums[i][h][d] * shrink[i];
      }
      // received[split][head][share]
      int owner = d * splits / D;
      int at = (split * kHeadTile + h) * share + d - owner * share;
#if __CUDA_ARCH__ >= 900
      if (splits > 1) {
        cluster.map_shared_rank(received, owner)[at] = sum;
        continue;
      }
#endif
      received[at] = sum;
    }
    if (lane < splits) {
      float2* to = &received_states[split][h];
#if __CUDA_ARCH__ >= 900
      if (splits > 1) {
        to = cluster.map_shared_rank(to, lane);
      }
#endif
      *to = make_float2(now, weights);
    }
  }
#if __CUDA_ARCH__ >= 900
  if (splits > 1) {
    cluster.sync();
  } else {
    __syncthreads();
  }
#else
  __syncthreads();
#endif
  for (int h = warp; h < count; h += WARPS) {
    float now = -INFINITY;
    for (int s = 0; s < splits; s++) {
      now = fmaxf(now, received_states[s][h].x);
    }
    float sink = -INFINITY;
    if (p.groups == 1 && p.sinks) {
      sink = p.sinks[head + h] * kLog2E;
      now = fmaxf(now, sink);
    }
    float shrink[kMostSplits];
    float weights = 0;
#pragma unroll
    for (int s = 0; s < kMostSplits; s++) {
      shrink[s] = 0;
      if (s < splits) {
        shrink[s] = shrink_to(received_states[s][h].x, now);
        weights += received_states[s][h].y * shrink[s];
      }
    }
    if (p.groups == 1) {
      weights += shrink_to(sink, now);
    }
    const size_t at =
        (static_cast<size_t>(row) * p.heads + head + h) * p.groups + group;
    for (int i = lane; i < share; i += 32) {
      float sum = 0;
#pragma unroll
      for (int s = 0; s < kMostSplits; s++) {
        if (s < splits) {
          sum += received[(s * kHeadTile + h) * share + i] * shrink[s];
        }
      }
      const int d = split * share + i;
      if (p.groups == 1) {
        p.out.data[p.out.at(row, (head + h) * D + d)] =
            __float2bfloat16(sum / weights);
      } else {
        p.group_sums[at * D + d] = sum;
      }
    }
    if (p.groups > 1 && split == 0 && lane == 0) {
      p.group_states[at] = make_float2(now, weights);
    }
  }
}

// Adds the groups up. grid (heads, rows), D threads.
__global__ void join_groups(const __grid_constant__ Attention p);

}  // namespace mlxx::kernels::cuda
