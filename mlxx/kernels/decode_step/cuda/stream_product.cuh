#pragma once

// Products of 1 to 8 rows for GPUs with dependent launches: one block for each
// multiprocessor, whose shared memory it fills, has strips of 16 rows of W, one
// group of STRIPS after another. Its warps share the columns. Each warp keeps a
// ring of its next tiles on their way into shared memory, without a break
// between groups; it fills it before it waits for the previous kernel. x comes
// the same way: a plain load would wait behind all copies that are under way.
// Every number of rows is computed alike.

#include "mlxx/kernels/decode_step/cuda/product_ends.cuh"
#include "mlxx/kernels/decode_step/cuda/weight_formats.cuh"

namespace mlxx::kernels::cuda {

// Bytes of shared memory: sums [warp][strip][lane][4], then each warp's ring;
// of a stage tiles of the strips, then x [8, 64].
template <typename TILE, int WARPS, int STRIPS, int MOST>
struct StreamMemory {
  static constexpr int kCodes = 512 * TILE::kCodes;
  static constexpr int kTile = kCodes + TILE::kScaleBytes;
  static constexpr int kX = STRIPS * kTile;
  static constexpr int kStage = kX + 1024;
  static constexpr int kSums = WARPS * STRIPS * 512;
  static constexpr int kRing = (MOST - kSums) / (WARPS * kStage);
  static constexpr size_t kBytes = size_t{WARPS} * kRing * kStage + kSums;
  static_assert(kRing >= 2, "copies go on while tiles are used");
};

// What a warp copies next.
template <typename TILE, int WARPS, int STRIPS, typename MEMORY>
struct TileStream {
  static constexpr int kChunks = TILE::kScaleBytes / 16;
  static_assert(kChunks * STRIPS <= 32, "one for a lane");
  static_assert(WARPS % TILE::kScaleTiles == 0, "scales may be of two tiles");
  const Product& p;
  const int warp;
  const int lane;
  const int count;  // tiles of a strip that are this warp's
  int strip;        // the first one of the group
  int strips;       // left, with this group
  const char* codes;
  const char* scales;
  int left;  // tiles of this group
  const char* x;
  int x_left;

  __device__ __forceinline__
  TileStream(const Product& product, int begin, int end, int warp, int lane)
      : p(product),
        warp(warp),
        lane(lane),
        count((p.tiles - warp + WARPS - 1) / WARPS),
        strip(begin),
        strips(count > 0 ? end - begin : 0) {
    start_group();
    start_x_again();
  }
  __device__ __forceinline__ void start_group() {
    const size_t at = static_cast<size_t>(strip) * p.tiles + warp;
    codes = reinterpret_cast<const char*>(p.codes) + at * MEMORY::kCodes +
        lane * 16;
    if constexpr (kChunks > 0) {
      const size_t of_lane = at + static_cast<size_t>(lane / kChunks) * p.tiles;
      scales = static_cast<const char*>(p.scales) +
          of_lane / TILE::kScaleTiles * TILE::kScaleBytes + lane % kChunks * 16;
    }
    left = count;
  }
  __device__ __forceinline__ void start_x_again() {
    x = reinterpret_cast<const char*>(p.x.data) +
        static_cast<size_t>(lane >> 3) * p.x.stride * 2 + warp * 128 +
        (lane & 7) * 16;
    x_left = count;
  }
  // A tile of each strip of the group.
  __device__ __forceinline__ void copy_tiles(unsigned to) {
    const size_t step = static_cast<size_t>(p.tiles) * MEMORY::kCodes;
#pragma unroll
    for (int s = 0; s < STRIPS; s++) {
      if (s < strips) {
#pragma unroll
        for (int i = 0; i < TILE::kCodes; i++) {
          copy_16(
              to + s * MEMORY::kTile + i * 512 + lane * 16,
              codes + s * step + i * 512);
        }
      }
    }
    if constexpr (kChunks > 0) {
      if (lane < min(STRIPS, strips) * kChunks) {
        copy_16(
            to + lane / kChunks * MEMORY::kTile + MEMORY::kCodes +
                lane % kChunks * 16,
            scales);
      }
      scales += WARPS / TILE::kScaleTiles * TILE::kScaleBytes;
    }
    codes += WARPS * MEMORY::kCodes;
    if (--left == 0) {
      strip += STRIPS;
      strips -= STRIPS;
      start_group();
    }
  }
  // x of a tile's columns: rows of 8 chunks, those of odd rows exchanged by
  // halves so that a warp reads from all banks.
  __device__ __forceinline__ void copy_x(unsigned to) {
    const int row = lane >> 3;
    to += MEMORY::kX + row * 128 + ((lane & 7) ^ (row & 1) << 2) * 16;
    if (row < p.rows) {
      copy_16(to, x);
    }
    if (row + 4 < p.rows) {
      copy_16(to + 512, x + static_cast<size_t>(p.x.stride) * 8);
    }
    x += WARPS * 128;
    if (--x_left == 0) {
      start_x_again();
    }
  }
};

template <typename TILE, int WARPS, int STRIPS, int MOST, Into INTO>
__global__ void __launch_bounds__(WARPS * 32, 1)
    stream_product(const __grid_constant__ Product p) {
  using Memory = StreamMemory<TILE, WARPS, STRIPS, MOST>;
  constexpr int kRing = Memory::kRing;
  static_assert(WARPS % 4 == 0, "a strip's sums are of 4 warps");
  // Sums that a thread ends: column threadIdx.x % 16 of row threadIdx.x / 16 %
  // 8 of strips threadIdx.x / 128 + i * WARPS / 4.
  constexpr int kEnds = (STRIPS * 4 + WARPS - 1) / WARPS;
  extern __shared__ __align__(128) char memory[];
  __shared__ float inverse_rms[8];
  let_next_start();
  const int lane = threadIdx.x & 31;
  const int warp = threadIdx.x >> 5;
  const int g = lane >> 2;
  const int t = lane & 3;
  const int begin = static_cast<int>(
      static_cast<long long>(p.strips) * blockIdx.x / gridDim.x);
  const int end = static_cast<int>(
      static_cast<long long>(p.strips) * (blockIdx.x + 1) / gridDim.x);
  float* sums = reinterpret_cast<float*>(memory);
  char* ring = memory + Memory::kSums + warp * (kRing * Memory::kStage);
  const unsigned ring_at = shared_address(ring);
  TileStream<TILE, WARPS, STRIPS, Memory> next(p, begin, end, warp, lane);
#pragma unroll 1
  for (int i = 0; i < kRing && next.strips > 0; i++) {
    next.copy_tiles(ring_at + i * Memory::kStage);
  }
  end_copies();
  const int end_strip = threadIdx.x >> 7;
  const int end_row = threadIdx.x >> 4 & 7;
  const int end_column = threadIdx.x & 15;
  EndInputs ends[kEnds];
  auto load_group_constants = [&](int first) {
#pragma unroll
    for (int i = 0; i < kEnds; i++) {
      int s = end_strip + i * (WARPS / 4);
      if (s < STRIPS) {
        load_constants(p, (first + s) * 16 + end_column, ends[i]);
      }
    }
  };
  load_group_constants(begin);
  wait_for_previous();
#pragma unroll 1
  for (int i = 0; i < kRing && next.count > 0; i++) {
    next.copy_x(ring_at + i * Memory::kStage);
  }
  end_copies();
  if (p.squares) {
    find_inverse_rms<WARPS>(p, inverse_rms, warp, lane);
  }
  const int x_low = (t ^ (g & 1) << 2) * 16;
  int slot = 0;  // bytes
  wait_for_copies<0>();
  __syncwarp();
#pragma unroll 1
  for (int first = begin; first < end; first += STRIPS) {
    const int strips = min(STRIPS, end - first);
    if constexpr (INTO == Into::residual) {
#pragma unroll
      for (int i = 0; i < kEnds; i++) {
        int s = end_strip + i * (WARPS / 4);
        if (s < strips) {
          load_stream(p, end_row, (first + s) * 16 + end_column, ends[i]);
        }
      }
    }
    float acc[STRIPS][4] = {};
#pragma unroll 1
    for (int left = next.count; left > 0; left--) {
      wait_for_copies<kRing - 1>();
      __syncwarp();
      const char* at = ring + slot;
      const char* x = at + Memory::kX + g * 128;
      const uint4 low = *reinterpret_cast<const uint4*>(x + x_low);
      const uint4 high = *reinterpret_cast<const uint4*>(x + (x_low ^ 64));
      const unsigned f[8] =
          {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
      float z[2][4] = {};
      sum_groups<TILE>(f, z);
      // Sums of strips past the last one come from what lies there, and go
      // nowhere.
#pragma unroll
      for (int s = 0; s < STRIPS; s++) {
        const char* from = at + s * Memory::kTile;
        TILE w;
#pragma unroll
        for (int i = 0; i < TILE::kCodes; i++) {
          w.q[i] = *reinterpret_cast<const uint4*>(from + i * 512 + lane * 16);
        }
        w.scales.read(from + Memory::kCodes, g);
        w.accumulate(f, z, acc[s], t);
      }
      __syncwarp();
      if (next.strips > 0) {
        next.copy_x(ring_at + slot);
        next.copy_tiles(ring_at + slot);
      }
      end_copies();
      slot = slot == (kRing - 1) * Memory::kStage ? 0 : slot + Memory::kStage;
    }
    if (first != begin) {
      __syncthreads();  // the group's before were read
    }
#pragma unroll
    for (int s = 0; s < STRIPS; s++) {
      *reinterpret_cast<float4*>(sums + ((warp * STRIPS + s) * 32 + lane) * 4) =
          make_float4(acc[s][0], acc[s][1], acc[s][2], acc[s][3]);
    }
    __syncthreads();
    const int from = (end_column & 7) * 4 + (end_row >> 1);
    const int part = (end_row & 1) + (end_column >= 8 ? 2 : 0);
#pragma unroll
    for (int i = 0; i < kEnds; i++) {
      const int s = end_strip + i * (WARPS / 4);
      if (s < strips) {
        float sum = 0;
#pragma unroll
        for (int k = 0; k < WARPS; k++) {
          sum += sums[((k * STRIPS + s) * 32 + from) * 4 + part];
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
    if (first + STRIPS < end) {
      load_group_constants(first + STRIPS);
    }
  }
}

}  // namespace mlxx::kernels::cuda
