#pragma once

// Products of 1 to 8 rows. A block has STRIPS strips of 16 rows of W, its warps
// share their columns: bound by the reading of W, so each warp has its next
// AHEAD tiles of every strip on their way into registers, the first ones before
// it waits for the previous kernel. Every number of rows is computed alike.
// What becomes of the sums is a parameter of the template: the code of a whole
// layer should stay in a multiprocessor's instruction cache.

#include "mlxx/kernels/decode_step/cuda/product_ends.cuh"
#include "mlxx/kernels/decode_step/cuda/weight_formats.cuh"

namespace mlxx::kernels::cuda {

template <typename TILE, int WARPS, int AHEAD, int STRIPS, Into INTO>
__global__ void __launch_bounds__(WARPS * 32, 32 / WARPS)
    rows_product(const __grid_constant__ Product p) {
  static_assert(WARPS % 4 == 0, "a strip's sums are of 4 warps");
  // Sums that a thread ends: column threadIdx.x % 16 of row threadIdx.x / 16 %
  // 8 of strips threadIdx.x / 128 + i * WARPS / 4.
  constexpr int kEnds = (STRIPS * 4 + WARPS - 1) / WARPS;
  __shared__ float inverse_rms[8];
  __shared__ float4 sums[WARPS][STRIPS][32];
  const int lane = threadIdx.x & 31;
  const int warp = threadIdx.x >> 5;
  const int g = lane >> 2;
  const int t = lane & 3;
  const int first = blockIdx.x * STRIPS;
  const int tiles = p.tiles;
  const uint4* codes = p.codes + lane;
  const char* scales = static_cast<const char*>(p.scales);
  TILE w[AHEAD][STRIPS];
  auto load = [&](int u, int tile) {
#pragma unroll
    for (int s = 0; s < STRIPS; s++) {
      const size_t at =
          static_cast<size_t>(min(first + s, p.strips - 1)) * tiles + tile;
#pragma unroll
      for (int i = 0; i < TILE::kCodes; i++) {
        w[u][s].q[i] = load_once(codes + (at * TILE::kCodes + i) * 32);
      }
      w[u][s].scales.read(
          scales + at / TILE::kScaleTiles * TILE::kScaleBytes,
          g);
    }
  };
  int tile = warp * AHEAD;
#pragma unroll
  for (int u = 0; u < AHEAD; u++) {
    if (tile + u < tiles) {
      load(u, tile + u);
    }
  }
  let_next_start();
  EndInputs ends[kEnds];
  const int end_strip = threadIdx.x >> 7;
  const int end_row = threadIdx.x >> 4 & 7;
  const int end_column = threadIdx.x & 15;
#pragma unroll
  for (int i = 0; i < kEnds; i++) {
    int s = end_strip + i * (WARPS / 4);
    if (s < STRIPS) {
      load_constants(p, (first + s) * 16 + end_column, ends[i]);
    }
  }
  wait_for_previous();
  const bool on = g < p.rows;
  const uint4* x = reinterpret_cast<const uint4*>(
                       p.x.data + static_cast<size_t>(g) * p.x.stride) +
      t;
  uint4 in[AHEAD][2];
  auto load_x = [&](int u, int at) {
    in[u][0] = in[u][1] = make_uint4(0, 0, 0, 0);
    if (on && at < tiles) {
      in[u][0] = x[at * 8];
      in[u][1] = x[at * 8 + 4];
    }
  };
#pragma unroll
  for (int u = 0; u < AHEAD; u++) {
    load_x(u, tile + u);
  }
  if constexpr (INTO == Into::residual) {
#pragma unroll
    for (int i = 0; i < kEnds; i++) {
      int s = end_strip + i * (WARPS / 4);
      if (s < STRIPS) {
        load_stream(p, end_row, (first + s) * 16 + end_column, ends[i]);
      }
    }
  }
  if (p.squares) {
    find_inverse_rms<WARPS>(p, inverse_rms, warp, lane);
  }
  float acc[STRIPS][4] = {};
#pragma unroll 1
  while (tile < tiles) {
    const int next = tile + WARPS * AHEAD;
#pragma unroll
    for (int u = 0; u < AHEAD; u++) {
      if (u == 0 || tile + u < tiles) {
        const unsigned f[8] = {
            in[u][0].x,
            in[u][0].y,
            in[u][0].z,
            in[u][0].w,
            in[u][1].x,
            in[u][1].y,
            in[u][1].z,
            in[u][1].w};
        float z[2][4] = {};
        sum_groups<TILE>(f, z);
#pragma unroll
        for (int s = 0; s < STRIPS; s++) {
          w[u][s].accumulate(f, z, acc[s], t);
        }
        if (next + u < tiles) {
          load(u, next + u);
          load_x(u, next + u);
        }
      }
    }
    tile = next;
  }
#pragma unroll
  for (int s = 0; s < STRIPS; s++) {
    sums[warp][s][lane] =
        make_float4(acc[s][0], acc[s][1], acc[s][2], acc[s][3]);
  }
  __syncthreads();
  const int from = (end_column & 7) * 4 + (end_row >> 1);
  const int part = (end_row & 1) + (end_column >= 8 ? 2 : 0);
#pragma unroll
  for (int i = 0; i < kEnds; i++) {
    const int s = end_strip + i * (WARPS / 4);
    if (s >= STRIPS) {
      return;
    }
    float sum = 0;
#pragma unroll
    for (int k = 0; k < WARPS; k++) {
      sum += reinterpret_cast<const float*>(&sums[k][s][from])[part];
    }
    finish_into<INTO>(
        p,
        end_row,
        first + s,
        end_column,
        sum,
        p.squares ? inverse_rms[end_row] : 1.f,
        ends[i]);
  }
}

}  // namespace mlxx::kernels::cuda
