#pragma once

// Products of 1 to 8 rows. A block has STRIPS strips of 16 rows of W, its warps
// share their columns: bound by the reading of W, so all it does is to have
// enough of that under way. Every number of rows is computed alike.

#include "product_ends.cuh"
#include "weight_formats.cuh"

namespace mlxx::kernels::cuda {

// Tile of the tile order: warp w takes tiles (i * WARPS + w) * DEPTH + d.
template <typename TILE, int WARPS, int DEPTH, int STRIPS>
__global__ void __launch_bounds__(WARPS * 32)
    rows_product(const __grid_constant__ Product p) {
  static_assert(STRIPS * 4 <= WARPS, "a thread ends at most one sum");
  constexpr int kNorms = (8 + WARPS - 1) / WARPS;  // rows of a warp
  __shared__ float inverse_rms[8];
  __shared__ float sums[WARPS][STRIPS][32][4];
  const int lane = threadIdx.x & 31;
  const int warp = threadIdx.x >> 5;
  const int g = lane >> 2;
  const int t = lane & 3;
  const int tiles = p.tiles;
  const int first = blockIdx.x * STRIPS;

  int strip[STRIPS];
#pragma unroll
  for (int s = 0; s < STRIPS; s++) {
    strip[s] = min(first + s, p.strips - 1);
  }
  TILE w[DEPTH][STRIPS];
  auto load = [&](int d, int tile) {
#pragma unroll
    for (int s = 0; s < STRIPS; s++) {
      load_tile(w[d][s], p.codes, p.scales, strip[s], tiles, tile, lane);
    }
  };
  int tile = warp * DEPTH;
#pragma unroll
  for (int d = 0; d < DEPTH; d++) {
    if (tile + d < tiles) {
      load(d, tile + d);
    }
  }
  if (p.fetch_own && lane == 0) {
    size_t strip_bytes = static_cast<size_t>(tiles) * 512 * TILE::kCodes;
    Ahead own = {
        reinterpret_cast<const char*>(p.codes) + first * strip_bytes,
        min(STRIPS, p.strips - first) * strip_bytes};
    prefetch(own, warp, WARPS);
  }
  // Where this thread's sum goes.
  const int end_strip = threadIdx.x >> 7;
  const int end_row = threadIdx.x >> 4 & 7;
  const int end_column = threadIdx.x & 15;
  EndInputs end;
  if (end_strip < STRIPS) {
    load_constants(p, (first + end_strip) * 16 + end_column, end);
  }
  let_next_start();
  wait_for_previous();
  if (end_strip < STRIPS) {
    load_stream(p, end_row, (first + end_strip) * 16 + end_column, end);
  }
  RowSquares squares[kNorms];
  if (p.squares) {
#pragma unroll
    for (int i = 0; i < kNorms; i++) {
      squares[i].load(p, warp + i * WARPS, lane);
    }
  }

  const unsigned ones[4] = {0x3f803f80, 0x3f803f80, 0x3f803f80, 0x3f803f80};
  const uint4* x = reinterpret_cast<const uint4*>(
                       p.x.data + static_cast<size_t>(g) * p.x.stride) +
      t;
  const bool on = g < p.rows;
  float acc[STRIPS][4] = {};
  while (tile < tiles) {
    const int next = tile + WARPS * DEPTH;
    uint4 in[DEPTH][2];
#pragma unroll
    for (int d = 0; d < DEPTH; d++) {
      in[d][0] = in[d][1] = make_uint4(0, 0, 0, 0);
      if (on && tile + d < tiles) {
        in[d][0] = x[(tile + d) * 8];
        in[d][1] = x[(tile + d) * 8 + 4];
      }
    }
#pragma unroll
    for (int d = 0; d < DEPTH; d++) {
      if (tile + d < tiles) {
        const unsigned f[8] = {
            in[d][0].x,
            in[d][0].y,
            in[d][0].z,
            in[d][0].w,
            in[d][1].x,
            in[d][1].y,
            in[d][1].z,
            in[d][1].w};
        float z[2][4] = {};
        if constexpr (TILE::kNeedsSums) {
          constexpr int kSecond = TILE::kSums - 1;
          mma(z[0], ones, f[0], f[1]);
          mma(z[0], ones, f[2], f[3]);
          mma(z[kSecond], ones, f[4], f[5]);
          mma(z[kSecond], ones, f[6], f[7]);
        }
#pragma unroll
        for (int s = 0; s < STRIPS; s++) {
          w[d][s].accumulate(f, z, acc[s], t);
        }
        if (next + d < tiles) {
          load(d, next + d);
        }
      }
    }
    tile = next;
  }
  if (p.ahead.bytes && threadIdx.x == 0) {
    prefetch(p.ahead, blockIdx.x, gridDim.x);
  }

#pragma unroll
  for (int s = 0; s < STRIPS; s++) {
    *reinterpret_cast<float4*>(sums[warp][s][lane]) =
        make_float4(acc[s][0], acc[s][1], acc[s][2], acc[s][3]);
  }
  if (p.squares) {
#pragma unroll
    for (int i = 0; i < kNorms; i++) {
      int m = warp + i * WARPS;
      float r = squares[i].inverse_rms(p, m, lane);
      if (lane == 0 && m < 8) {
        inverse_rms[m] = r;
      }
    }
  }
  __syncthreads();
  if (end_strip >= STRIPS) {
    return;
  }
  const int from = (end_column & 7) * 4 + (end_row >> 1);
  const int part = (end_row & 1) + (end_column >= 8 ? 2 : 0);
  float sum = 0;
#pragma unroll
  for (int i = 0; i < WARPS; i++) {
    sum += sums[i][end_strip][from][part];
  }
  finish(
      p,
      end_row,
      first + end_strip,
      end_column,
      sum,
      p.squares ? inverse_rms[end_row] : 1.f,
      end);
}

}  // namespace mlxx::kernels::cuda
