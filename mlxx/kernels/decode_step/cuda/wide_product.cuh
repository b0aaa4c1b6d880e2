#pragma once

// Products of 9 to 64 rows. A block has 8 strips of 16 rows of W, two a warp,
// and two warps share a pair's columns; W becomes bfloat16 fragments in
// registers, x goes through shared memory as the cores of its layout. The
// blocks of a cluster share the columns of the same strips and add up what they
// have in each other's memory, in the order of their ranks.

#include <cooperative_groups.h>

#include "mlxx/kernels/decode_step/cuda/product_ends.cuh"
#include "mlxx/kernels/decode_step/cuda/weight_formats.cuh"

namespace mlxx::kernels::cuda {

inline constexpr int kWideStrips = 8;
inline constexpr int kWideShare = 2;  // warps of a pair of strips

// A warp's copies of tiles in shared memory, numbers and scales: what a lane
// copies and reads back is its own, but for the scales. Tiles of STRIPS strips
// lie one after another.
template <typename TILE, int STRIPS>
struct WideTileCopy {
  static constexpr int kCodeBytes = 512 * TILE::kCodes;
  static constexpr int kBytes = kCodeBytes + TILE::kScaleBytes;
  static constexpr int kChunks = TILE::kScaleBytes / 16;
  static_assert(kChunks * STRIPS <= 32, "one for a lane");
  const char* codes[STRIPS];
  const char* scales;
  unsigned scale_to;

  __device__ __forceinline__
  WideTileCopy(const Product& p, const int* strip, int tile, int lane) {
#pragma unroll
    for (int s = 0; s < STRIPS; s++) {
      codes[s] = reinterpret_cast<const char*>(p.codes) +
          (static_cast<size_t>(strip[s]) * p.tiles + tile) * kCodeBytes +
          lane * 16;
    }
    scales = nullptr;
    scale_to = 0;
    if constexpr (kChunks > 0) {
      if (lane < kChunks * STRIPS) {
        int s = lane / kChunks;
        int row = strip[0];
#pragma unroll
        for (int i = 1; i < STRIPS; i++) {
          row = s == i ? strip[i] : row;
        }
        size_t at = static_cast<size_t>(row) * p.tiles + tile;
        scales = static_cast<const char*>(p.scales) +
            at / TILE::kScaleTiles * TILE::kScaleBytes + lane % kChunks * 16;
        scale_to = s * kBytes + kCodeBytes + lane % kChunks * 16;
      }
    }
  }
  // Starts copying to `to`; the next copy is ADVANCE tiles further.
  template <int ADVANCE>
  __device__ __forceinline__ void start(unsigned to, int lane) {
    static_assert(ADVANCE % TILE::kScaleTiles == 0, "whole scales");
#pragma unroll
    for (int s = 0; s < STRIPS; s++) {
#pragma unroll
      for (int i = 0; i < TILE::kCodes; i++) {
        copy_16(to + s * kBytes + i * 512 + lane * 16, codes[s] + i * 512);
      }
      codes[s] += ADVANCE * kCodeBytes;
    }
    if constexpr (kChunks > 0) {
      if (lane < kChunks * STRIPS) {
        copy_16(to + scale_to, scales);
        scales += ADVANCE / TILE::kScaleTiles * TILE::kScaleBytes;
      }
    }
  }
  static __device__ __forceinline__ void
  read(TILE& into, const char* from, int lane) {
#pragma unroll
    for (int i = 0; i < TILE::kCodes; i++) {
      into.q[i] = *reinterpret_cast<const uint4*>(from + (32 * i + lane) * 16);
    }
    into.scales.read(from + kCodeBytes, lane >> 2);
  }
};

// CORES: rows / 8, padded to 2, 4 or 8. A stage: two tiles' columns of x, then
// of W, each warp's by itself.
template <typename TILE, int CORES>
struct WideMemory {
  static constexpr int kInput = kWideShare * CORES * 1024;  // bytes
  static constexpr int kOfWarp = 2 * WideTileCopy<TILE, 2>::kBytes;
  static constexpr int kStage = kInput + 8 * kOfWarp;
  // [ranks][strips / ranks][rows][16], apart from what others still use
  static constexpr size_t kReceived = size_t{kWideStrips} * CORES * 8 * 16 * 4;
  // Two blocks fit.
  static constexpr int kFit = (114688 - static_cast<int>(kReceived)) / kStage;
  static constexpr int kStages = kFit < 3 ? 3 : kFit > 6 ? 6 : kFit;
  static constexpr int kRowStride = 20;  // floats: 16 and no bank conflicts
  static constexpr int kStripFloats = CORES * 8 * kRowStride;
  static constexpr size_t kInFlight = size_t{kStages} * kStage;
  static constexpr size_t kPartials =
      size_t{kWideShare} * kWideStrips * kStripFloats * 4;
  static constexpr size_t kFirst =
      kInFlight > kPartials ? kInFlight : kPartials;
  static constexpr size_t bytes(int ranks) {
    return kFirst + (ranks > 1 ? kReceived : 0);
  }
};

__device__ __forceinline__ void load_cores(unsigned* to, unsigned address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3},[%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(address));
}

template <typename TILE, int CORES>
__global__ void __launch_bounds__(256, 2)
    wide_product(const __grid_constant__ Product p, int ranks) {
  namespace cg = cooperative_groups;
  using Memory = WideMemory<TILE, CORES>;
  using Copy = WideTileCopy<TILE, 2>;
  constexpr int kStages = Memory::kStages;
  extern __shared__ __align__(128) char memory[];
  __shared__ float inverse_rms[CORES * 8];
  const int lane = threadIdx.x & 31;
  const int warp = threadIdx.x >> 5;
  const int g = lane >> 2;
  const int t = lane & 3;
  const int share = warp & 1;
  const int rank = blockIdx.x % ranks;
  const int first = blockIdx.x / ranks * kWideStrips;
#if __CUDA_ARCH__ >= 900
  cg::cluster_group cluster = cg::this_cluster();
  if (ranks > 1) {
    asm volatile("barrier.cluster.arrive.relaxed.aligned;");
  }
#endif
  int strip[2];
#pragma unroll
  for (int s = 0; s < 2; s++) {
    strip[s] = min(first + (warp >> 1) * 2 + s, p.strips - 1);
  }
  const int pairs = (p.tiles + kWideShare - 1) / kWideShare;
  const int per = (pairs + ranks - 1) / ranks;
  const int begin = rank * per * kWideShare;
  const int end = min(p.tiles, begin + per * kWideShare);
  const int stages = (max(end - begin, 0) + kWideShare - 1) / kWideShare;

  const unsigned memory_at = shared_address(memory);
  Copy copy(p, strip, begin + share, lane);
  // Of what is still to be copied; a slot is a stage's place in bytes.
  int own_left = (max(end - begin - share, 0) + kWideShare - 1) / kWideShare;
  int input_left = max(end - begin, 0) * (CORES * 1024) - threadIdx.x * 16;
  const char* input = reinterpret_cast<const char*>(p.x.data) +
      static_cast<size_t>(begin) * (CORES * 1024) + threadIdx.x * 16;
  const unsigned input_at = memory_at + threadIdx.x * 16;
  const unsigned weights_at =
      memory_at + Memory::kInput + warp * Memory::kOfWarp;
  auto fetch_weights = [&](int slot) {
    if (own_left > 0) {
      copy.template start<kWideShare>(weights_at + slot, lane);
    }
    own_left--;
  };
  auto fetch_input = [&](int slot) {
#pragma unroll
    for (int i = 0; i < Memory::kInput; i += 4096) {
      if (i < input_left) {
        copy_16(input_at + slot + i, input + i);
      }
    }
    input += Memory::kInput;
    input_left -= Memory::kInput;
  };
#pragma unroll
  for (int i = 0; i < kStages - 1; i++) {
    fetch_weights(i * Memory::kStage);
  }
  let_next_start();
  wait_for_previous();
  // The first group has all of the weights so far.
#pragma unroll
  for (int i = 0; i < kStages - 1; i++) {
    fetch_input(i * Memory::kStage);
    end_copies();
  }
  if (p.squares) {
    RowSquares squares[CORES];
#pragma unroll
    for (int i = 0; i < CORES; i++) {
      squares[i].load(p, warp + 8 * i, lane);
    }
#pragma unroll
    for (int i = 0; i < CORES; i++) {
      float r = squares[i].inverse_rms(p, warp + 8 * i, lane);
      if (lane == 0) {
        inverse_rms[warp + 8 * i] = r;
      }
    }
  }

  float acc[2][CORES][4] = {};
  // Lane's row of core (lane / 8 % 2) of columns and (lane / 16) of rows.
  const unsigned lane_at =
      ((lane >> 3 & 1) * CORES + (lane >> 4)) * 128 + (lane & 7) * 16;
  constexpr int kLast = (kStages - 1) * Memory::kStage;
  int read_at = 0;
  int write_at = kLast;
  const int own = own_left + kStages - 1;  // stages with a tile of this warp
  for (int stage = 0; stage < stages; stage++) {
    wait_for_copies<kStages - 2>();
    __syncthreads();
    fetch_weights(write_at);
    fetch_input(write_at);
    end_copies();
    const int stage_at = read_at;
    write_at = read_at;
    read_at = read_at == kLast ? 0 : read_at + Memory::kStage;
    if (stage >= own) {
      continue;
    }
    unsigned a[2][4][4];
#pragma unroll
    for (int s = 0; s < 2; s++) {
      TILE w;
      Copy::read(
          w,
          memory + stage_at + Memory::kInput + warp * Memory::kOfWarp +
              s * Copy::kBytes,
          lane);
      w.fragments(a[s], t);
    }
    const unsigned tile_at =
        memory_at + stage_at + share * (CORES * 1024) + lane_at;
#pragma unroll
    for (int k = 0; k < 4; k++) {
#pragma unroll
      for (int n = 0; n < CORES; n += 2) {
        unsigned b[4];
        load_cores(b, tile_at + (k * 2 * CORES + n) * 128);
#pragma unroll
        for (int s = 0; s < 2; s++) {
          mma(acc[s][n], a[s][k], b[0], b[1]);
          mma(acc[s][n + 1], a[s][k], b[2], b[3]);
        }
      }
    }
  }
  wait_for_copies<0>();
  __syncthreads();

  // partials [share][strip][row m][column o]
  float* partials = reinterpret_cast<float*>(memory);
#pragma unroll
  for (int s = 0; s < 2; s++) {
    float* mine = partials +
        (share * kWideStrips + (warp >> 1) * 2 + s) * Memory::kStripFloats;
#pragma unroll
    for (int n = 0; n < CORES; n++) {
#pragma unroll
      for (int i = 0; i < 4; i++) {
        int m = n * 8 + 2 * t + (i & 1);
        mine[m * Memory::kRowStride + g + (i >> 1) * 8] =
            acc[s][n][i] * TILE::kFactor;
      }
    }
  }
  __syncthreads();
  const int owned = kWideStrips / ranks;
  constexpr int kStripSums = CORES * 8 * 16;
  auto local = [&](int e) {
    int s = e / kStripSums;
    int m = e % kStripSums / 16;
    const float* at =
        partials + s * Memory::kStripFloats + m * Memory::kRowStride + e % 16;
    return at[0] + at[kWideStrips * Memory::kStripFloats];
  };
  float* received = reinterpret_cast<float*>(
      reinterpret_cast<char*>(memory) + Memory::kFirst);
#if __CUDA_ARCH__ >= 900
  if (ranks > 1) {
    asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
    for (int e = threadIdx.x; e < kWideStrips * kStripSums; e += 256) {
      int owner = e / kStripSums / owned;
      float* to = cluster.map_shared_rank(received, owner);
      to[(rank * owned) * kStripSums + e % (owned * kStripSums)] = local(e);
    }
    cluster.sync();
  }
#endif
  for (int e = threadIdx.x; e < owned * kStripSums; e += 256) {
    float sum = 0;
    if (ranks == 1) {
      sum = local(e);
    } else {
      for (int r = 0; r < ranks; r++) {
        sum += received[r * owned * kStripSums + e];
      }
    }
    int m = e % kStripSums / 16;
    int s = first + rank * owned + e / kStripSums;
    EndInputs in;
    load_constants(p, s * 16 + e % 16, in);
    load_stream(p, m, s * 16 + e % 16, in);
    finish(p, m, s, e % 16, sum, p.squares ? inverse_rms[m] : 1.f, in);
  }
}

}  // namespace mlxx::kernels::cuda
