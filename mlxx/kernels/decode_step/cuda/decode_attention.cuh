#pragma once

// One new token of each row sees the keys and values of its row. Tensor cores
// take 16 tokens by 8 query heads of one key head at a time; each warp keeps a
// ring of such units on their way into shared memory, the first ones before it
// waits for the previous kernel. The blocks of a cluster share the tokens, in
// units of 16 dealt out in turn, and add up in each other's memory; groups of
// kGroupTokens tokens are added up by a kernel of their own. What a row's sums
// are made of depends on its length alone.
// Online softmax: Milakov and Gimelshein, 2018; splits: Dao et al.,
// Flash-Decoding, 2023.

#include "mlxx/kernels/decode_step/cuda/cluster_blocks.cuh"
#include "mlxx/kernels/decode_step/cuda/placed_heads.cuh"

namespace mlxx::kernels::cuda {

__device__ __forceinline__ unsigned transpose(unsigned v) {
  unsigned r;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0,%1;"
               : "=r"(r)
               : "r"(v));
  return r;
}
__device__ __forceinline__ void load_matrices(unsigned* to, unsigned address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3},[%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(address)
               : "memory");
}
__device__ __forceinline__ void load_transposed(
    unsigned* to,
    unsigned address) {
  asm volatile(
      "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3},[%4];"
      : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
      : "r"(address)
      : "memory");
}
// 16 bytes, or zeros.
__device__ __forceinline__ void
copy_16_if(unsigned to, const void* from, bool on) {
  asm volatile(
      "cp.async.cg.shared.global.L2::128B [%0],[%1],16,%2;" ::"r"(to),
      "l"(from),
      "r"(on ? 16 : 0));
}

// A warp's ring: DEPTH units of 16 keys and 16 values, rows padded so that
// eight of them lie in different banks.
template <int D, int DEPTH>
struct KvRing {
  static constexpr int kRow = 2 * D + 16;    // bytes
  static constexpr int kValues = 16 * kRow;  // where they are in a unit
  static constexpr int kUnit = 2 * kValues;
  static constexpr int kBytes = DEPTH * kUnit;  // of a warp
  static constexpr int kChunks = D / 8;         // of 16 bytes of a row
  static constexpr int kSumsRow = D + 4;        // floats, of a head
  static_assert(kBytes >= kHeadTile * kSumsRow * 4, "sums take its place");

  // All of a warp: tokens from `first` on, of them those below `end` but
  // `length`. from: where the first one's keys are.
  static __device__ __forceinline__ void start(
      unsigned to,
      const bf16* from,
      size_t values_at,
      int first,
      int end,
      int length) {
    const int lane = threadIdx.x & 31;
    const bool whole = first + 16 <= min(end, length);
    from += lane * 8;
    const bf16* values = from + values_at;
    if constexpr (32 % kChunks == 0) {
      const unsigned at = to + lane / kChunks * kRow + lane % kChunks * 16;
      if (whole) {
#pragma unroll
        for (int i = 0; i < kChunks / 2; i++) {
          const int row = i * (32 / kChunks);
          copy_16(at + row * kRow, from + 256 * i);
          copy_16(at + row * kRow + kValues, values + 256 * i);
        }
        return;
      }
    }
#pragma unroll 1
    for (int i = 0; i < kChunks / 2; i++) {
      const int row = (lane + 32 * i) / kChunks;
      const int column = (lane + 32 * i) % kChunks;
      const bool on = first + row < end && first + row != length;
      const unsigned at = to + row * kRow + column * 16;
      copy_16_if(at, from + 256 * i, on);
      copy_16_if(at + kValues, values + 256 * i, on);
    }
  }
};

constexpr int attention_warps(int head_size) {
  return head_size <= 128 ? 8 : 4;
}
template <int D, int DEPTH>
constexpr size_t attention_shared() {
  return size_t{attention_warps(D)} * KvRing<D, DEPTH>::kBytes;
}

// exp2(most - now), also where nothing was seen.
__device__ __forceinline__ float shrink_to(float most, float now) {
  return most == -INFINITY ? 0.f : exp2f(most - now);
}

template <int D, int WARPS, int DEPTH>
__global__ void __launch_bounds__(WARPS * 32, D <= 128 ? 16 / WARPS : 8 / WARPS)
    decode_attention(const __grid_constant__ Attention p) {
  using Ring = KvRing<D, DEPTH>;
  constexpr int kTiles = D / 16;  // of 16 numbers
  extern __shared__ __align__(128) char rings[];
  // One row more is read by matrices than there is, if D is 80.
  __shared__ __align__(16) bf16 queries[kHeadTile + 1][D + 8];
  __shared__ __align__(16) bf16 newest_key[D];
  __shared__ float2 warp_states[WARPS][kHeadTile];
  // Of a share of every head's numbers, from each split.
  __shared__ __align__(16) float received[kHeadTile * D];
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
  void* const* blocks = p.blocks + static_cast<size_t>(row) * p.blocks_stride;
  const size_t values_at = static_cast<size_t>(p.kv_heads) * kKvBlockLength * D;
  auto keys_of = [&](int token) {
    const char* block = static_cast<const char*>(blocks[token >> 6]);
    return const_cast<bf16*>(reinterpret_cast<const bf16*>(block + p.keys_at)) +
        (static_cast<size_t>(kv) * kKvBlockLength + (token & 63)) * D;
  };
  const int first_unit = begin / kUnit;
  const int last_unit = (end - 1) / kUnit;
  char* const ring = rings + warp * Ring::kBytes;
  const unsigned ring_at = shared_address(ring);
  const int stride = splits * WARPS;
  int u = first_unit + split * WARPS + warp;
  int ahead = u;  // the next one to be copied
  auto fetch = [&](int slot) {
    if (ahead <= last_unit) {
      Ring::start(
          ring_at + slot,
          keys_of(ahead * kUnit),
          values_at,
          ahead * kUnit,
          end,
          length);
    }
    end_copies();
    ahead += stride;
  };
#pragma unroll
  for (int i = 0; i < DEPTH; i++) {
    fetch(i * Ring::kUnit);
  }
  const int share = D / splits;
  if (splits > 1) {
    cluster_arrive_empty();
  }
  for (int i = threadIdx.x + count * (D / 8 + 1); i < kHeadTile * (D / 8 + 1);
       i += WARPS * 32) {
    reinterpret_cast<uint4*>(queries)[i] = make_uint4(0, 0, 0, 0);
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
  HeadPairs<D> pairs;
  pairs.load(p, row);
  PlacedHead<D> placed[kJobs];
#pragma unroll
  for (int i = 0; i < kJobs; i++) {
    int h = warp + i * WARPS;
    if (h < count) {
      placed[i].load(in + static_cast<size_t>(head + h) * D, pairs);
    } else if (h == count && has_newest) {
      placed[i].load(in + static_cast<size_t>(p.heads + kv) * D, pairs);
    }
  }
#pragma unroll
  for (int i = 0; i < kJobs; i++) {
    int h = warp + i * WARPS;
    if (h < count) {
      placed[i].place(pairs, p.q_norm, head + h, factor, queries[h]);
    } else if (h == count && has_newest) {
      placed[i].place(pairs, p.k_norm, kv, 1.f, newest_key);
    }
  }
  __syncthreads();
  if (has_newest && head_tile == 0 && threadIdx.x < D / 4) {
    // Of D / 8 threads the key, of as many the value.
    const int i = threadIdx.x % (D / 8);
    const bool value = threadIdx.x >= D / 8;
    reinterpret_cast<uint4*>(keys_of(length) + (value ? values_at : 0))[i] =
        reinterpret_cast<const uint4*>(value ? newest_value : newest_key)[i];
  }

  // Numbers 16 k + 2 t + {0, 1} and 8 further of head g.
  unsigned q[(kTiles + 1) / 2][4];
  const unsigned queries_at =
      shared_address(queries) + ((lane & 7) * (D + 8) + (lane >> 3) * 8) * 2;
#pragma unroll
  for (int k = 0; k < (kTiles + 1) / 2; k++) {
    load_matrices(q[k], queries_at + k * 64);
  }
  float out[kTiles][4] = {};
  float most[2] = {-INFINITY, -INFINITY};  // of heads 2t, 2t + 1
  float total[2] = {0, 0};                 // of this lane's tokens
  // Keys: rows of tokens; values: transposed.
  const int key_at = (lane & 15) * Ring::kRow + (lane >> 4) * 16;
  const int value_at = Ring::kValues +
      ((lane & 7) + (lane >> 4) * 8) * Ring::kRow + (lane >> 3 & 1) * 16;
  const float to_log2 = p.softcap > 0 ? 1.f : p.scale * kLog2E;
  int slot = 0;
#pragma unroll 1
  for (; u <= last_unit; u += stride) {
    wait_for_copies<DEPTH - 1>();
    __syncwarp();
    if (u == length / kUnit) {
      char* newest = ring + slot + length % kUnit * Ring::kRow;
      for (int i = lane; i < Ring::kChunks; i += 32) {
        reinterpret_cast<uint4*>(newest)[i] =
            reinterpret_cast<const uint4*>(newest_key)[i];
        reinterpret_cast<uint4*>(newest + Ring::kValues)[i] =
            reinterpret_cast<const uint4*>(newest_value)[i];
      }
      __syncwarp();
    }
    float c[2][4] = {};
#pragma unroll
    for (int k = 0; k < kTiles; k++) {
      unsigned a[4];
      load_matrices(a, ring_at + slot + key_at + 32 * k);
      mma(c[k & 1], a, q[k / 2][k % 2 * 2], q[k / 2][k % 2 * 2 + 1]);
    }
    // s[i]: token g + 8 (i / 2), head 2t + i % 2
    float s[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
      s[i] = (c[0][i] + c[1][i]) * to_log2;
    }
    if (p.softcap > 0) {
#pragma unroll
      for (int i = 0; i < 4; i++) {
        s[i] = p.softcap * tanhf(s[i] * p.scale / p.softcap) * kLog2E;
      }
    }
    if (u * kUnit < begin || u * kUnit + kUnit > end) {
#pragma unroll
      for (int i = 0; i < 4; i++) {
        int token = u * kUnit + g + (i >> 1) * 8;
        s[i] = token >= begin && token < end ? s[i] : -INFINITY;
      }
    }
    float now[2];
    float shrink[2];
    float weight[4];
#pragma unroll
    for (int h = 0; h < 2; h++) {
      now[h] = fmaxf(s[h], s[h + 2]);
      now[h] = fmaxf(now[h], __shfl_xor_sync(~0u, now[h], 4));
      now[h] = fmaxf(now[h], __shfl_xor_sync(~0u, now[h], 8));
      now[h] = fmaxf(now[h], __shfl_xor_sync(~0u, now[h], 16));
      now[h] = fmaxf(now[h], most[h]);
      // A unit always has a token that is seen.
      shrink[h] = exp2f(most[h] - now[h]);
      weight[h] = exp2f(s[h] - now[h]);
      weight[h + 2] = exp2f(s[h + 2] - now[h]);
      total[h] = total[h] * shrink[h] + (weight[h] + weight[h + 2]);
    }
    if (__any_sync(~0u, now[0] != most[0] || now[1] != most[1])) {
#pragma unroll
      for (int i = 0; i < kTiles; i++) {
#pragma unroll
        for (int h = 0; h < 4; h++) {
          out[i][h] *= shrink[h & 1];
        }
      }
    }
    most[0] = now[0];
    most[1] = now[1];
    const unsigned b0 = transpose(pack_pair(weight[0], weight[1]));
    const unsigned b1 = transpose(pack_pair(weight[2], weight[3]));
#pragma unroll
    for (int i = 0; i < kTiles; i++) {
      unsigned a[4];
      load_transposed(a, ring_at + slot + value_at + 32 * i);
      mma(out[i], a, b0, b1);
    }
    __syncwarp();
    fetch(slot);
    slot = slot == (DEPTH - 1) * Ring::kUnit ? 0 : slot + Ring::kUnit;
  }
  wait_for_copies<0>();
  __syncwarp();

  // Where the warp's ring was: sums[head][number].
  float* sums = reinterpret_cast<float*>(ring);
#pragma unroll
  for (int h = 0; h < 2; h++) {
    float v = total[h];
    v += __shfl_xor_sync(~0u, v, 4);
    v += __shfl_xor_sync(~0u, v, 8);
    v += __shfl_xor_sync(~0u, v, 16);
    if (g == 0) {
      warp_states[warp][2 * t + h] = make_float2(most[h], v);
    }
    if (2 * t + h < count) {
#pragma unroll
      for (int i = 0; i < kTiles; i++) {
        sums[(2 * t + h) * Ring::kSumsRow + 16 * i + g] = out[i][h];
        sums[(2 * t + h) * Ring::kSumsRow + 16 * i + g + 8] = out[i][h + 2];
      }
    }
  }
  __syncthreads();

  // Four numbers from `d` of a head and its state: at their place.
  auto give = [&](int h, int d, float4 sum, float now, float weights) {
    const size_t at =
        (static_cast<size_t>(row) * p.heads + head + h) * p.groups + group;
    if (p.groups == 1) {
      // As join_groups() does with one group, so that bits are the same.
      if (p.sinks) {
        const float sink = p.sinks[head + h] * kLog2E;
        const float most = fmaxf(now, sink);
        const float shrink = exp2f(now - most);
        weights = __fadd_rn(__fmul_rn(weights, shrink), exp2f(sink - most));
        sum.x *= shrink;
        sum.y *= shrink;
        sum.z *= shrink;
        sum.w *= shrink;
      }
      bf16* to = p.out.data;
      const int column = (head + h) * D + d;
      *reinterpret_cast<unsigned*>(to + p.out.at(row, column)) =
          pack_pair(sum.x / weights, sum.y / weights);
      *reinterpret_cast<unsigned*>(to + p.out.at(row, column + 2)) =
          pack_pair(sum.z / weights, sum.w / weights);
    } else {
      *reinterpret_cast<float4*>(p.group_sums + at * D + d) = sum;
      if (d == 0) {
        p.group_states[at] = make_float2(now, weights);
      }
    }
  };
  if (splits > 1) {
    cluster_wait();
  }
  // A warp joins whole heads; each block of the cluster ends a share of every
  // head's numbers.
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
    for (int d = lane * 4; d < D; d += 128) {
      float4 sum = make_float4(0, 0, 0, 0);
#pragma unroll
      for (int i = 0; i < WARPS; i++) {
        // A warp without a unit has sums of zero.
        const float4 v = *reinterpret_cast<const float4*>(
            rings + i * Ring::kBytes + (h * Ring::kSumsRow + d) * 4);
        sum.x += v.x * shrink[i];
        sum.y += v.y * shrink[i];
        sum.z += v.z * shrink[i];
        sum.w += v.w * shrink[i];
      }
      if (splits > 1) {
        // received[split][head][share]
        const int owner = d / share;
        const int at = (split * count + h) * share + d - owner * share;
        send(of_rank(shared_address(received + at), owner), sum);
        continue;
      }
      give(h, d, sum, now, weights);
    }
    if (splits > 1 && lane < splits) {
      send(
          of_rank(shared_address(&received_states[split][h]), lane),
          make_float2(now, weights));
    }
  }
  if (splits == 1) {
    return;
  }
  cluster_arrive();
  cluster_wait();
  for (int e = threadIdx.x; e < count * share / 4; e += WARPS * 32) {
    const int h = e / (share / 4);
    const int at = e % (share / 4) * 4;
    float now = -INFINITY;
    for (int s = 0; s < splits; s++) {
      now = fmaxf(now, received_states[s][h].x);
    }
    float weights = 0;
    float4 sum = make_float4(0, 0, 0, 0);
    for (int s = 0; s < splits; s++) {
      const float2 state = received_states[s][h];
      const float shrink = shrink_to(state.x, now);
      weights += state.y * shrink;
      const float4 v = *reinterpret_cast<const float4*>(
          received + (s * count + h) * share + at);
      sum.x += v.x * shrink;
      sum.y += v.y * shrink;
      sum.z += v.z * shrink;
      sum.w += v.w * shrink;
    }
    give(h, split * share + at, sum, now, weights);
  }
}

}  // namespace mlxx::kernels::cuda
