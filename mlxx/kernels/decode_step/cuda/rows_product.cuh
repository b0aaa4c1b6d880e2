#pragma once

// Products of 1 to 8 rows. A block has STRIPS strips of 16 rows of W, its warps
// share their columns: bound by the reading of W, so each warp keeps a ring of
// its next tiles on their way into shared memory; it fills it before it waits
// for the previous kernel. Every number of rows is computed alike.

#include "mlxx/kernels/decode_step/cuda/product_ends.cuh"
#include "mlxx/kernels/decode_step/cuda/weight_formats.cuh"

namespace mlxx::kernels::cuda {

template <typename TILE, int WARPS, int STRIPS>
struct RowsMemory {
  static constexpr int kStage =
      STRIPS * TileCopy<TILE, STRIPS>::kBytes;  // of a warp
  static constexpr int kMost = 57344;           // so that 4 blocks fit
  static constexpr int kFit = kMost / (WARPS * kStage);
  static constexpr int kRing = kFit < 2 ? 2 : kFit;
  static constexpr size_t kBytes = size_t{WARPS} * kRing * kStage;
  static_assert(kBytes >= size_t{WARPS} * STRIPS * 512, "sums fit as well");
};

template <typename TILE, int WARPS, int STRIPS>
__global__ void __launch_bounds__(WARPS * 32, 32 / WARPS)
    rows_product(const __grid_constant__ Product p) {
  static_assert(WARPS % 2 == 0, "scales may be of two tiles");
  using Memory = RowsMemory<TILE, WARPS, STRIPS>;
  using Copy = TileCopy<TILE, STRIPS>;
  constexpr int kRing = Memory::kRing;
  constexpr int kNorms = (8 + WARPS - 1) / WARPS;  // rows of a warp
  // Sums that a thread ends: column threadIdx.x % 16 of row threadIdx.x / 16 %
  // 8 of strips threadIdx.x / 128 + i * WARPS / 4.
  constexpr int kEnds = (STRIPS * 4 + WARPS - 1) / WARPS;
  static_assert(WARPS % 4 == 0, "a strip's sums are of 4 warps");
  extern __shared__ __align__(128) char memory[];
  __shared__ float inverse_rms[8];
  const int lane = threadIdx.x & 31;
  const int warp = threadIdx.x >> 5;
  const int g = lane >> 2;
  const int t = lane & 3;
  const int first = blockIdx.x * STRIPS;
  int strip[STRIPS];
#pragma unroll
  for (int s = 0; s < STRIPS; s++) {
    strip[s] = min(first + s, p.strips - 1);
  }
  char* ring = memory + warp * (kRing * Memory::kStage);
  const unsigned ring_at = shared_address(ring);
  // Warp w has tiles w, w + WARPS, ...
  const int count = (p.tiles - warp + WARPS - 1) / WARPS;
  Copy copy(p, strip, warp, lane);
#pragma unroll
  for (int i = 0; i < kRing; i++) {
    if (i < count) {
      copy.template start<WARPS>(ring_at + i * Memory::kStage, lane);
    }
    end_copies();
  }
  const int end_strip = threadIdx.x >> 7;
  const int end_row = threadIdx.x >> 4 & 7;
  const int end_column = threadIdx.x & 15;
  EndInputs end[kEnds];
#pragma unroll
  for (int i = 0; i < kEnds; i++) {
    int s = end_strip + i * (WARPS / 4);
    if (s < STRIPS) {
      load_constants(p, (first + s) * 16 + end_column, end[i]);
    }
  }
  let_next_start();
  wait_for_previous();
  const uint4* x = reinterpret_cast<const uint4*>(
                       p.x.data + static_cast<size_t>(g) * p.x.stride) +
      t;
  const bool on = g < p.rows;
  x += warp * 8;
  uint4 in[2] = {make_uint4(0, 0, 0, 0), make_uint4(0, 0, 0, 0)};
  if (on && count > 0) {
    in[0] = x[0];
    in[1] = x[4];
  }
#pragma unroll
  for (int i = 0; i < kEnds; i++) {
    int s = end_strip + i * (WARPS / 4);
    if (s < STRIPS) {
      load_stream(p, end_row, (first + s) * 16 + end_column, end[i]);
    }
  }
  RowSquares squares[kNorms];
  if (p.squares) {
#pragma unroll
    for (int i = 0; i < kNorms; i++) {
      squares[i].load(p, warp + i * WARPS, lane);
    }
  }

  const unsigned ones[4] = {0x3f803f80, 0x3f803f80, 0x3f803f80, 0x3f803f80};
  float acc[STRIPS][4] = {};
  int slot = 0;  // bytes
  for (int left = count; left > 0; left--) {
    wait_for_copies<kRing - 1>();
    __syncwarp();
    TILE w[STRIPS];
#pragma unroll
    for (int s = 0; s < STRIPS; s++) {
      Copy::read(w[s], ring + slot + s * Copy::kBytes, lane);
    }
    __syncwarp();
    if (left > kRing) {
      copy.template start<WARPS>(ring_at + slot, lane);
    }
    end_copies();
    slot = slot == (kRing - 1) * Memory::kStage ? 0 : slot + Memory::kStage;
    const unsigned f[8] = {
        in[0].x,
        in[0].y,
        in[0].z,
        in[0].w,
        in[1].x,
        in[1].y,
        in[1].z,
        in[1].w};
    x += WARPS * 8;
    if (on && left > 1) {
      in[0] = x[0];
      in[1] = x[4];
    }
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
      w[s].accumulate(f, z, acc[s], t);
    }
  }

  // sums[warp][strip][lane][4] where the ring was.
  wait_for_copies<0>();
  __syncthreads();
  float* sums = reinterpret_cast<float*>(memory);
#pragma unroll
  for (int s = 0; s < STRIPS; s++) {
    *reinterpret_cast<float4*>(sums + ((warp * STRIPS + s) * 32 + lane) * 4) =
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
      sum += sums[((k * STRIPS + s) * 32 + from) * 4 + part];
    }
    finish(
        p,
        end_row,
        first + s,
        end_column,
        sum,
        p.squares ? inverse_rms[end_row] : 1.f,
        end[i]);
  }
}

}  // namespace mlxx::kernels::cuda
