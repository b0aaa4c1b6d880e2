// Products of few rows with quantized matrices in MLX's form, on tensor cores.
// Text that MLX compiles (core/custom_kernel.h).
#pragma once
#include "half_pairs.cuh"

namespace mlxx_few_rows {

using namespace mlxx_half_pairs;

__device__ inline void multiply(
    float (&c)[4],
    const unsigned (&a)[4],
    unsigned b0,
    unsigned b1,
    __nv_bfloat16) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};\n"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ inline void multiply(
    float (&c)[4],
    const unsigned (&a)[4],
    unsigned b0,
    unsigned b1,
    __half) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
      "{%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};\n"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ inline unsigned two_ones(__nv_bfloat16) {
  return 0x3f803f80;
}

__device__ inline unsigned two_ones(__half) {
  return 0x3c003c00;
}

// Which rows of x a block multiplies with which matrix.
struct Tile {
  int matrix;
  int first;  // row of y, and of `sources`
  int count;  // at most 8 * NT
};

// Each block writes 16 columns of y for the rows of its
// tile. A warp takes every WARPS-th unit of columns of W; the sums of the warps
// are added in their order, so a row's bits depend on that row alone.
//
// w [matrices, N, K * BITS / 32], scales and biases [matrices, N, K / GROUP],
// x [*, K]: row r of y is of row sources[r] of x, or of row r if that is null.
template <typename T, typename S, int BITS, int GROUP, int NT, int WARPS>
__device__ void few_rows(
    const T* x,
    const unsigned* w,
    const S* scales,
    const S* biases,
    const int* sources,
    Tile tile,
    int N,
    int K,
    T* y,
    float* shared) {
  constexpr int kUnit = GROUP < 64 ? GROUP : 64;  // columns of W
  constexpr int kEach = kUnit / 4;                // of a lane: 16 or 8
  constexpr int kWords = kEach * BITS / 32;       // 1, 2 or 4
  constexpr int kAhead = 4;                       // units that are fetched
  int lane = threadIdx.x & 31;
  int warp = threadIdx.x >> 5;
  int g = lane >> 2;
  int t = lane & 3;
  int units = K / kUnit;
  int row0 = blockIdx.x * 16 + g;
  // Rows past the end are read as the last one and not written.
  int safe0 = min(row0, N - 1);
  int safe1 = min(row0 + 8, N - 1);
  size_t base = (size_t)tile.matrix * N;
  size_t words_of_row = (size_t)K * BITS / 32;
  size_t groups = K / GROUP;
  const unsigned* w0 = w + (base + safe0) * words_of_row + t * kWords;
  const unsigned* w1 = w + (base + safe1) * words_of_row + t * kWords;
  const S* s0 = scales + (base + safe0) * groups;
  const S* s1 = scales + (base + safe1) * groups;
  const S* b0 = biases + (base + safe0) * groups;
  const S* b1 = biases + (base + safe1) * groups;
  const T* xs[NT];
#pragma unroll
  for (int n = 0; n < NT; ++n) {
    int row = n * 8 + g;
    xs[n] = nullptr;
    if (row < tile.count) {
      int source = sources ? sources[tile.first + row] : tile.first + row;
      xs[n] = x + (size_t)source * K + t * kEach;
    }
  }
  float sums[NT][4] = {};
  unsigned ones[4] = {
      two_ones(T()), two_ones(T()), two_ones(T()), two_ones(T())};
  for (int from = warp * kAhead; from < units; from += WARPS * kAhead) {
    unsigned c0[kAhead][kWords];
    unsigned c1[kAhead][kWords];
    float scale0[kAhead], scale1[kAhead], bias0[kAhead], bias1[kAhead];
#pragma unroll
    for (int u = 0; u < kAhead; ++u) {
      int unit = min(from + u, units - 1);
      const unsigned* p0 = w0 + (size_t)unit * (kUnit * BITS / 32);
      const unsigned* p1 = w1 + (size_t)unit * (kUnit * BITS / 32);
      if constexpr (kWords == 4) {
        *reinterpret_cast<uint4*>(c0[u]) = __ldg((const uint4*)p0);
        *reinterpret_cast<uint4*>(c1[u]) = __ldg((const uint4*)p1);
      } else if constexpr (kWords == 2) {
        *reinterpret_cast<uint2*>(c0[u]) = __ldg((const uint2*)p0);
        *reinterpret_cast<uint2*>(c1[u]) = __ldg((const uint2*)p1);
      } else {
        c0[u][0] = __ldg(p0);
        c1[u][0] = __ldg(p1);
      }
      int group = unit * kUnit / GROUP;
      scale0[u] = static_cast<float>(s0[group]);
      scale1[u] = static_cast<float>(s1[group]);
      bias0[u] = static_cast<float>(b0[group]);
      bias1[u] = static_cast<float>(b1[group]);
    }
#pragma unroll
    for (int u = 0; u < kAhead; ++u) {
      if (from + u >= units) {
        break;
      }
      unsigned a[kEach / 4][4];
#pragma unroll
      for (int h = 0; h < kEach / 8; ++h) {
        if constexpr (BITS == 4) {
          unsigned v0 = c0[u][h];
          unsigned v1 = c1[u][h];
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            a[2 * h + i][0] = pair_of_nibbles(v0 >> (8 * i), T());
            a[2 * h + i][1] = pair_of_nibbles(v1 >> (8 * i), T());
            a[2 * h + i][2] = pair_of_nibbles(v0 >> (8 * i + 4), T());
            a[2 * h + i][3] = pair_of_nibbles(v1 >> (8 * i + 4), T());
          }
        } else {
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            a[2 * h + i][0] = pair_of_bytes(c0[u][2 * h + i], T());
            a[2 * h + i][1] = pair_of_bytes(c1[u][2 * h + i], T());
            a[2 * h + i][2] = pair_of_bytes(c0[u][2 * h + i] >> 16, T());
            a[2 * h + i][3] = pair_of_bytes(c1[u][2 * h + i] >> 16, T());
          }
        }
      }
#pragma unroll
      for (int n = 0; n < NT; ++n) {
        float product[4] = {};
        float total[4] = {};
#pragma unroll
        for (int h = 0; h < kEach / 8; ++h) {
          uint4 v = make_uint4(0, 0, 0, 0);
          if (xs[n]) {
            v = *reinterpret_cast<const uint4*>(
                xs[n] + (size_t)(from + u) * kUnit + h * 8);
          }
          unsigned p[4] = {v.x, v.y, v.z, v.w};
          if constexpr (BITS == 4) {
            // As the numbers of a word lie: 0 and 4, 1 and 5, ...
            p[0] = __byte_perm(v.x, v.z, 0x5410);
            p[1] = __byte_perm(v.x, v.z, 0x7632);
            p[2] = __byte_perm(v.y, v.w, 0x5410);
            p[3] = __byte_perm(v.y, v.w, 0x7632);
          }
          multiply(product, a[2 * h], p[0], p[1], T());
          multiply(product, a[2 * h + 1], p[2], p[3], T());
          multiply(total, ones, p[0], p[1], T());
          multiply(total, ones, p[2], p[3], T());
        }
        sums[n][0] += scale0[u] * product[0] + bias0[u] * total[0];
        sums[n][1] += scale0[u] * product[1] + bias0[u] * total[1];
        sums[n][2] += scale1[u] * product[2] + bias1[u] * total[2];
        sums[n][3] += scale1[u] * product[3] + bias1[u] * total[3];
      }
    }
  }
  // shared [WARPS][NT * 8 rows of y][16 columns]
  float* mine = shared + warp * (NT * 128);
#pragma unroll
  for (int n = 0; n < NT; ++n) {
    mine[(n * 8 + 2 * t) * 16 + g] = sums[n][0];
    mine[(n * 8 + 2 * t + 1) * 16 + g] = sums[n][1];
    mine[(n * 8 + 2 * t) * 16 + g + 8] = sums[n][2];
    mine[(n * 8 + 2 * t + 1) * 16 + g + 8] = sums[n][3];
  }
  __syncthreads();
  for (int i = threadIdx.x; i < NT * 128; i += WARPS * 32) {
    int row = i / 16;
    int column = blockIdx.x * 16 + i % 16;
    if (row < tile.count && column < N) {
      float sum = 0;
#pragma unroll
      for (int k = 0; k < WARPS; ++k) {
        sum += shared[k * (NT * 128) + i];
      }
      y[(size_t)(tile.first + row) * N + column] = static_cast<T>(sum);
    }
  }
}

}  // namespace mlxx_few_rows
