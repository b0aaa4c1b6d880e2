#pragma once

// Products of 9 to 64 rows, on devices with bulk copies (9.0 and later). A block has 8 strips of
// 16 rows of W, one a warp; W becomes bfloat16 fragments in registers, x goes
// through shared memory as the cores of its layout. Each warp refills its own
// part of a ring of stages, a ninth one x, a tenth one adds up squares. The
// blocks of a cluster share the columns of the same strips and add up what they
// have in each other's memory, in the order of their ranks.

#include "mlxx/kernels/decode_step/cuda/product_ends.cuh"
#include "mlxx/kernels/decode_step/cuda/warpgroup_math.cuh"
#include "mlxx/kernels/decode_step/cuda/weight_formats.cuh"

namespace mlxx::kernels::cuda {

inline constexpr int kGroupStrips = 8;
inline constexpr int kGroupThreads = 32 * (kGroupStrips + 2);

// CORES: rows / 8, padded to 2, 4 or 8. A stage: two tiles' columns of x, then
// of W, each warp's by itself.
template <typename TILE, int CORES>
struct GroupMemory {
  static constexpr int kTileCodes = 512 * TILE::kCodes;
  static constexpr int kCodes = 2 * kTileCodes;
  static constexpr int kScales = 2 / TILE::kScaleTiles * TILE::kScaleBytes;
  static constexpr int kTileInput = CORES * 1024;
  static constexpr int kInput = 2 * kTileInput;
  static constexpr int kStrip = kCodes + kScales;
  static constexpr int kStage = kInput + kGroupStrips * kStrip;
  static constexpr int kMost = 112640;  // two blocks fit
  static constexpr int kFit = kMost / kStage;
  static constexpr int kStages = kFit < 2 ? 2 : kFit > 8 ? 8 : kFit;
  // Then: partials [strips][rows][16, padded], what others send
  // [ranks][strips / ranks][rows][16].
  static constexpr int kRowStride = 20;  // floats
  static constexpr int kStripFloats = CORES * 8 * kRowStride;
  static constexpr size_t kPartials = size_t{kGroupStrips} * kStripFloats * 4;
  static constexpr size_t kReceived = size_t{kGroupStrips} * CORES * 8 * 16 * 4;
  static constexpr size_t kRing = size_t{kStages} * kStage;
  static constexpr size_t kBytes =
      kRing > kPartials + kReceived ? kRing : kPartials + kReceived;
};

// The sums of a strip as a warp has them, W's rows g and g + 8 and x's rows 8 n
// + 2 t + {0, 1}, to where they go; what is rare is left to finish().
__device__ __forceinline__ bool ends_directly(const Product& p) {
  return p.into == Into::floats || (p.into == Into::rows && p.out % 2 == 0) ||
      (p.into == Into::activation && p.gated && p.out % 4 == 0);
}
template <int CORES>
__device__ __forceinline__ void finish_strip(
    const Product& p,
    int strip,
    const float (*acc)[4],
    float factor,
    const float* inverse_rms) {
  const int lane = threadIdx.x & 31;
  const int g = lane >> 2;
  const int t = lane & 3;
  const int first = strip * 16 + g;
  const float low = p.bias && first < p.out ? p.bias[first] : 0.f;
  const float high = p.bias && first + 8 < p.out ? p.bias[first + 8] : 0.f;
#pragma unroll
  for (int n = 0; n < CORES; n++) {
    const int m = 8 * n + 2 * t;
    const float2 by = p.squares
        ? *reinterpret_cast<const float2*>(inverse_rms + m)
        : make_float2(1, 1);
    float v[4] = {
        acc[n][0] * factor * by.x + low,
        acc[n][1] * factor * by.y + low,
        acc[n][2] * factor * by.x + high,
        acc[n][3] * factor * by.y + high};
    if (p.into == Into::floats) {
#pragma unroll
      for (int i = 0; i < 4; i++) {
        float f = v[i] * p.multiplier;
        if (p.softcap > 0) {
          f = cap(f, p.softcap);
        }
        const int row = m + (i & 1);
        const int column = first + (i >> 1) * 8;
        if (row < p.rows && column < p.out) {
          p.floats[static_cast<size_t>(row) * p.out + column] = f;
        }
      }
      continue;
    }
    // Two columns side by side of one row: lanes of even g have row m.
    auto give = [&](float a, float b, int column, int end) {
      const bool odd = g & 1;
      const float other = __shfl_xor_sync(~0u, odd ? a : b, 4);
      const int row = m + odd;
      const unsigned pair = odd ? pack_pair(other, b) : pack_pair(a, other);
      if (row < p.rows && column < end) {
        *reinterpret_cast<unsigned*>(p.y.data + p.y.at(row, column & ~1)) =
            pair;
      }
    };
    if (p.into == Into::activation) {
      auto active = [&](float x) {
        return p.activation == Activation::silu
            ? __fdividef(x, 1.f + __expf(-x))
            : activate_rarely(x, p.activation);
      };
      give(active(v[0]) * v[2], active(v[1]) * v[3], strip * 8 + g, p.out / 2);
    } else {
      give(v[0], v[1], first, p.out);
      give(v[2], v[3], first + 8, p.out);
    }
  }
}

template <typename TILE, int CORES>
__global__ void __launch_bounds__(kGroupThreads, 2)
    group_product(const __grid_constant__ Product p, int ranks) {
#if __CUDA_ARCH__ >= 900
  using Memory = GroupMemory<TILE, CORES>;
  constexpr int kStages = Memory::kStages;
  extern __shared__ __align__(128) char memory[];
  __shared__ __align__(8) float inverse_rms[CORES * 8];
  __shared__ __align__(8) unsigned long long barriers[2 * kStages];
  const int lane = threadIdx.x & 31;
  const int warp = threadIdx.x >> 5;
  const int g = lane >> 2;
  const int t = lane & 3;
  const int rank = blockIdx.x % ranks;
  const int first = blockIdx.x / ranks * kGroupStrips;
  const unsigned full = shared_address(barriers);
  const unsigned empty = full + 8 * kStages;
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; i++) {
      barrier_init(full + 8 * i, kGroupStrips + 1);
      barrier_init(empty + 8 * i, kGroupStrips);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  const int pairs = (p.tiles + 1) / 2;
  const int per = (pairs + ranks - 1) / ranks;
  const int begin = min(p.tiles, rank * per * 2);
  const int end = min(p.tiles, begin + per * 2);
  const int stages = (end - begin + 1) / 2;
  const unsigned memory_at = shared_address(memory);
  float acc[CORES][4] = {};

  if (warp == kGroupStrips) {
    let_next_start();
    wait_for_previous();
    if (lane == 0) {
      const char* input = reinterpret_cast<const char*>(p.x.data) +
          static_cast<size_t>(begin) * Memory::kTileInput;
      for (int i = 0; i < stages; i++) {
        const int slot = i % kStages;
        if (i >= kStages) {
          barrier_wait(empty + 8 * slot, (i / kStages - 1) & 1);
        }
        const int bytes = min(2, end - begin - 2 * i) * Memory::kTileInput;
        barrier_expect(full + 8 * slot, bytes);
        bulk_copy(
            memory_at + slot * Memory::kStage,
            input + static_cast<size_t>(i) * Memory::kInput,
            bytes,
            full + 8 * slot);
      }
    }
  } else if (warp > kGroupStrips) {
    let_next_start();
    wait_for_previous();
    if (p.squares) {
      for (int m = 0; m < CORES * 8; m += 4) {
        RowSquares squares[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
          squares[i].load(p, m + i, lane);
        }
#pragma unroll
        for (int i = 0; i < 4; i++) {
          float r = squares[i].inverse_rms(p, m + i, lane);
          if (lane == 0) {
            inverse_rms[m + i] = r;
          }
        }
      }
    }
  } else {
    const int strip = min(first + warp, p.strips - 1);
    const size_t tile = static_cast<size_t>(strip) * p.tiles + begin;
    const char* codes =
        reinterpret_cast<const char*>(p.codes) + tile * Memory::kTileCodes;
    const char* scales = static_cast<const char*>(p.scales) +
        tile / TILE::kScaleTiles * TILE::kScaleBytes;
    const unsigned own_at = memory_at + Memory::kInput + warp * Memory::kStrip;
    auto refill = [&](int i, int slot) {
      if (lane == 0 && i < stages) {
        const int tiles = min(2, end - begin - 2 * i);
        const int code_bytes = tiles * Memory::kTileCodes;
        const int scale_bytes = tiles / TILE::kScaleTiles * TILE::kScaleBytes;
        const unsigned to = own_at + slot * Memory::kStage;
        barrier_expect(full + 8 * slot, code_bytes + scale_bytes);
        bulk_copy(
            to,
            codes + static_cast<size_t>(i) * Memory::kCodes,
            code_bytes,
            full + 8 * slot);
        if constexpr (TILE::kScaleBytes > 0) {
          bulk_copy(
              to + Memory::kCodes,
              scales + static_cast<size_t>(i) * Memory::kScales,
              scale_bytes,
              full + 8 * slot);
        }
      }
    };
    for (int i = 0; i < kStages; i++) {
      refill(i, i);
    }
    let_next_start();
    const char* const own = memory + Memory::kInput + warp * Memory::kStrip;
    auto read = [&](TILE& w, int at, int k) {
#pragma unroll
      for (int j = 0; j < TILE::kCodes; j++) {
        w.q[j] = *reinterpret_cast<const uint4*>(
            own + at + k * Memory::kTileCodes + (32 * j + lane) * 16);
      }
      w.scales.read(
          own + at + Memory::kCodes + k / TILE::kScaleTiles * TILE::kScaleBytes,
          g);
    };
    auto multiply = [&](const unsigned(*a)[4], int at, int k) {
      const unsigned long long b =
          cores_at<CORES>(memory_at + at + k * Memory::kTileInput);
      group_fence();
#pragma unroll
      for (int j = 0; j < 4; j++) {
        group_mma<CORES>(acc, a[j], b + j * CORES * 16);
      }
      group_commit();
    };
    const int whole = (end - begin) / 2;  // stages of two tiles
    int slot = 0;
    unsigned parity = 0;
    unsigned last = 0;  // barrier of the stage before
    unsigned a[2][4][4];
    for (int i = 0; i < whole; i++) {
      const int at = slot * Memory::kStage;
      barrier_wait(full + 8 * slot, parity);
      TILE w[2];
      read(w[0], at, 0);
      read(w[1], at, 1);
      __syncwarp();
      refill(i + kStages, slot);
      w[0].fragments(a[0], t);
      multiply(a[0], at, 0);
      group_wait<1>();
      if (lane == 0 && last != 0) {
        barrier_arrive(last);
      }
      w[1].fragments(a[1], t);
      multiply(a[1], at, 1);
      group_wait<1>();
      last = empty + 8 * slot;
      slot++;
      if (slot == kStages) {
        slot = 0;
        parity ^= 1;
      }
    }
    if (whole < stages) {
      const int at = slot * Memory::kStage;
      barrier_wait(full + 8 * slot, parity);
      TILE w;
      read(w, at, 0);
      w.fragments(a[0], t);
      multiply(a[0], at, 0);
    }
    group_wait<0>();
    wait_for_previous();
  }
  __syncwarp();
  if (ranks == 1 && ends_directly(p)) {
    __syncthreads();
    if (warp < kGroupStrips && first + warp < p.strips) {
      finish_strip<CORES>(p, first + warp, acc, TILE::kFactor, inverse_rms);
    }
    return;
  }
  __syncthreads();
  if (ranks > 1) {
    cluster_arrive();
  }
  // Sums that a thread ends: at most CORES at a time.
  const int owned = kGroupStrips / ranks;
  constexpr int kStripSums = CORES * 8 * 16;
  auto row_of = [](int e) { return e % kStripSums / 16; };
  auto strip_of = [&](int e) { return first + rank * owned + e / kStripSums; };
  EndInputs in[CORES];
  if (warp < kGroupStrips) {
#pragma unroll
    for (int i = 0; i < CORES; i++) {
      int e = threadIdx.x + 256 * i;
      if (e < owned * kStripSums) {
        load_constants(p, strip_of(e) * 16 + e % 16, in[i]);
        load_stream(p, row_of(e), strip_of(e) * 16 + e % 16, in[i]);
      }
    }
  }
  // partials [strip][row m][column o]
  float* partials = reinterpret_cast<float*>(memory);
  if (warp < kGroupStrips) {
    float* mine = partials + warp * Memory::kStripFloats;
#pragma unroll
    for (int n = 0; n < CORES; n++) {
#pragma unroll
      for (int i = 0; i < 4; i++) {
        int m = n * 8 + 2 * t + (i & 1);
        mine[m * Memory::kRowStride + g + (i >> 1) * 8] =
            acc[n][i] * TILE::kFactor;
      }
    }
  }
  __syncthreads();
  auto local = [&](int e) {
    return partials + e / kStripSums * Memory::kStripFloats +
        row_of(e) * Memory::kRowStride + e % 16;
  };
  float* received = reinterpret_cast<float*>(
      reinterpret_cast<char*>(memory) + Memory::kPartials);
  if (ranks > 1) {
    cluster_wait();
    if (warp < kGroupStrips) {
#pragma unroll
      for (int e = threadIdx.x * 4; e < kGroupStrips * kStripSums; e += 1024) {
        const int owner = e / kStripSums / owned;
        const int to = rank * owned * kStripSums + e % (owned * kStripSums);
        send(
            of_rank(shared_address(received + to), owner),
            *reinterpret_cast<const float4*>(local(e)));
      }
    }
    cluster_arrive();
    cluster_wait();
  }
  if (warp >= kGroupStrips) {
    return;
  }
  auto end_sum = [&](int e, const EndInputs& inputs) {
    float sum = 0;
    if (ranks == 1) {
      sum = *local(e);
    } else {
      for (int r = 0; r < ranks; r++) {
        sum += received[r * owned * kStripSums + e];
      }
    }
    int m = row_of(e);
    finish(
        p,
        m,
        strip_of(e),
        e % 16,
        sum,
        p.squares ? inverse_rms[m] : 1.f,
        inputs);
  };
#pragma unroll
  for (int i = 0; i < CORES; i++) {
    int e = threadIdx.x + 256 * i;
    if (e < owned * kStripSums) {
      end_sum(e, in[i]);
    }
  }
  for (int e = threadIdx.x + 256 * CORES; e < owned * kStripSums; e += 256) {
    EndInputs late;
    load_constants(p, strip_of(e) * 16 + e % 16, late);
    load_stream(p, row_of(e), strip_of(e) * 16 + e % 16, late);
    end_sum(e, late);
  }
#endif
}

}  // namespace mlxx::kernels::cuda
