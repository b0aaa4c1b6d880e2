#pragma once

// Tiles of 16 rows by 64 columns of packed matrices: how a lane (g, t) loads
// its numbers and makes fragments of them. Of each 32 columns, half h, the lane
// has columns 8t..8t + 7 of rows g and g + 8. Fragment 2h + m takes columns 8t
// + 4m
// + {0, 1} and {2, 3}, so that 8 consecutive numbers of x are the fragments of
// two products as they are.

#include "mlxx/kernels/decode_step/cuda/decoder_cuda.h"
#include "mlxx/kernels/decode_step/cuda/product_ends.cuh"

namespace mlxx::kernels::cuda {

// 128 + q of the lowest 4 bits of both halves, exact in bfloat16.
__device__ __forceinline__ unsigned offset_nibbles(unsigned q) {
  unsigned r;
  asm("lop3.b32 %0,%1,0x000f000f,0x43004300,0xEA;" : "=r"(r) : "r"(q));
  return r;
}
inline constexpr unsigned kOffset = 0x43004300;  // 128, 128

// Numbers of 4 bits with 2 of exponent and 1 of mantissa in the nibbles `i` of
// both halves, times 2^-126.
template <int I>
__device__ __forceinline__ unsigned small_e2m1(unsigned w) {
  unsigned sign = w << (12 - 4 * I);
  unsigned rest;
  if constexpr (I == 0) {
    rest = w << 6;
  } else if constexpr (I == 1) {
    rest = w << 2;
  } else if constexpr (I == 2) {
    rest = w >> 2;
  } else {
    rest = w >> 6;
  }
  return (sign & 0x80008000u) | (rest & 0x01C001C0u);
}
inline constexpr unsigned kTwoTo126 = 0x7E807E80;

template <WeightFormat F, int GROUP>
struct Tile;

// Scales and biases of affine matrices: {s, b} of row g, {s, b} of row g + 8.
template <int GROUP>
struct AffineScales {
  static constexpr int kCount = GROUP == 32 ? 2 : 1;
  uint2 pair[kCount];

  __device__ __forceinline__ void read(const char* from, int g) {
#pragma unroll
    for (int i = 0; i < kCount; i++) {
      pair[i] = reinterpret_cast<const uint2*>(from)[i * 8 + g];
    }
  }
  static __device__ __forceinline__ unsigned twice_low(unsigned v) {
    return __byte_perm(v, v, 0x1010);
  }
  static __device__ __forceinline__ unsigned twice_high(unsigned v) {
    return __byte_perm(v, v, 0x3232);
  }
  // acc += s * c + (b - offset * s) * z
  __device__ __forceinline__ void
  add(int i, float offset, const float* c, const float* z, float* acc) const {
    float s0 = low_half(pair[i].x);
    float b0 = fmaf(-offset, s0, high_half(pair[i].x));
    float s1 = low_half(pair[i].y);
    float b1 = fmaf(-offset, s1, high_half(pair[i].y));
    acc[0] = fmaf(s0, c[0], fmaf(b0, z[0], acc[0]));
    acc[1] = fmaf(s0, c[1], fmaf(b0, z[1], acc[1]));
    acc[2] = fmaf(s1, c[2], fmaf(b1, z[0], acc[2]));
    acc[3] = fmaf(s1, c[3], fmaf(b1, z[1], acc[3]));
  }
};

template <int GROUP>
struct Tile<WeightFormat::affine4, GROUP> {
  static constexpr int kScaleBytes = GROUP == 32 ? 128 : 64;
  static constexpr int kScaleTiles = GROUP == 128 ? 2 : 1;  // that share them
  static constexpr int kCodes = 1;                          // uint4 of a lane
  static constexpr bool kNeedsSums = true;
  static constexpr int kSums = GROUP == 32 ? 2 : 1;
  static constexpr float kFactor = 1;
  uint4 q[1];
  AffineScales<GROUP> scales;

  // acc[16, 8] += tile * x; x: fragments of 64 rows by 8; z: sums of x's
  // columns over each group.
  __device__ __forceinline__ void
  accumulate(const unsigned* x, const float (*z)[4], float* acc, int) const {
    float c[4] = {0, 0, 0, 0};
#pragma unroll
    for (int h = 0; h < 2; h++) {
      unsigned p = h ? q[0].y : q[0].x;
      unsigned r = h ? q[0].w : q[0].z;
      unsigned a[4] = {
          offset_nibbles(p),
          offset_nibbles(r),
          offset_nibbles(p >> 4),
          offset_nibbles(r >> 4)};
      mma(c, a, x[4 * h], x[4 * h + 1]);
      unsigned b[4] = {
          offset_nibbles(p >> 8),
          offset_nibbles(r >> 8),
          offset_nibbles(p >> 12),
          offset_nibbles(r >> 12)};
      mma(c, b, x[4 * h + 2], x[4 * h + 3]);
      if constexpr (GROUP == 32) {
        scales.add(h, 128, c, z[h], acc);
        c[0] = c[1] = c[2] = c[3] = 0;
      }
    }
    if constexpr (GROUP != 32) {
      scales.add(0, 128, c, z[0], acc);
    }
  }
  // The tile as bfloat16.
  __device__ __forceinline__ void fragments(unsigned (*a)[4], int) const {
#pragma unroll
    for (int h = 0; h < 2; h++) {
#pragma unroll
      for (int row = 0; row < 2; row++) {
        unsigned w = h ? (row ? q[0].w : q[0].y) : (row ? q[0].z : q[0].x);
        uint2 sb = scales.pair[GROUP == 32 ? h : 0];
        unsigned v = row ? sb.y : sb.x;
        unsigned s = AffineScales<GROUP>::twice_low(v);
        unsigned b = AffineScales<GROUP>::twice_high(v);
#pragma unroll
        for (int i = 0; i < 4; i++) {
          unsigned n = subtract_pairs(offset_nibbles(w >> (4 * i)), kOffset);
          a[2 * h + i / 2][i % 2 * 2 + row] = multiply_add_pairs(n, s, b);
        }
      }
    }
  }
};

template <int GROUP>
struct Tile<WeightFormat::affine8, GROUP> {
  static constexpr int kScaleBytes = GROUP == 32 ? 128 : 64;
  static constexpr int kScaleTiles = GROUP == 128 ? 2 : 1;  // that share them
  static constexpr int kCodes = 2;
  static constexpr bool kNeedsSums = true;
  static constexpr int kSums = GROUP == 32 ? 2 : 1;
  static constexpr float kFactor = 1;
  uint4 q[2];
  AffineScales<GROUP> scales;

  __device__ __forceinline__ void
  accumulate(const unsigned* x, const float (*z)[4], float* acc, int) const {
    float low[4] = {0, 0, 0, 0};
    float high[4] = {0, 0, 0, 0};
#pragma unroll
    for (int h = 0; h < 2; h++) {
#pragma unroll
      for (int m = 0; m < 2; m++) {
        unsigned p = m ? q[h].y : q[h].x;
        unsigned r = m ? q[h].w : q[h].z;
        unsigned a[4] = {
            offset_nibbles(p),
            offset_nibbles(r),
            offset_nibbles(p >> 8),
            offset_nibbles(r >> 8)};
        mma(low, a, x[4 * h + 2 * m], x[4 * h + 2 * m + 1]);
        unsigned b[4] = {
            offset_nibbles(p >> 4),
            offset_nibbles(r >> 4),
            offset_nibbles(p >> 12),
            offset_nibbles(r >> 12)};
        mma(high, b, x[4 * h + 2 * m], x[4 * h + 2 * m + 1]);
      }
      if (GROUP == 32 || h == 1) {
        float c[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
          c[i] = low[i] + 16 * high[i];
          low[i] = high[i] = 0;
        }
        scales
            .add(GROUP == 32 ? h : 0, 128 * 17, c, z[GROUP == 32 ? h : 0], acc);
      }
    }
  }
  __device__ __forceinline__ void fragments(unsigned (*a)[4], int) const {
    constexpr unsigned kSixteen = 0x41804180;
#pragma unroll
    for (int h = 0; h < 2; h++) {
#pragma unroll
      for (int row = 0; row < 2; row++) {
        uint2 sb = scales.pair[GROUP == 32 ? h : 0];
        unsigned v = row ? sb.y : sb.x;
        unsigned s = AffineScales<GROUP>::twice_low(v);
        unsigned b = AffineScales<GROUP>::twice_high(v);
#pragma unroll
        for (int m = 0; m < 2; m++) {
          unsigned w = m ? (row ? q[h].w : q[h].y) : (row ? q[h].z : q[h].x);
#pragma unroll
          for (int i = 0; i < 2; i++) {
            unsigned low =
                subtract_pairs(offset_nibbles(w >> (8 * i)), kOffset);
            unsigned high =
                subtract_pairs(offset_nibbles(w >> (8 * i + 4)), kOffset);
            unsigned n = multiply_add_pairs(high, kSixteen, low);
            a[2 * h + m][2 * i + row] = multiply_add_pairs(n, s, b);
          }
        }
      }
    }
  }
};

template <>
struct Tile<WeightFormat::mxfp4, 32> {
  static constexpr int kScaleBytes = 32;
  static constexpr int kScaleTiles = 1;  // that share them
  static constexpr int kCodes = 1;
  static constexpr bool kNeedsSums = false;
  static constexpr int kSums = 1;
  static constexpr float kFactor = 1;
  struct Scales {
    unsigned bytes;  // exponents of row g: halves 0, 1; of row g + 8: the same

    __device__ __forceinline__ void read(const char* from, int g) {
      bytes = reinterpret_cast<const unsigned*>(from)[g];
    }
    __device__ __forceinline__ unsigned exponent(int row, int h) const {
      return bytes >> (16 * row + 8 * h) & 0xff;
    }
  };
  uint4 q[1];
  Scales scales;

  static __device__ __forceinline__ void
  half_fragments(unsigned p, unsigned r, unsigned (*a)[4]) {
    a[0][0] = multiply_pairs(small_e2m1<0>(p), kTwoTo126);
    a[0][1] = multiply_pairs(small_e2m1<0>(r), kTwoTo126);
    a[0][2] = multiply_pairs(small_e2m1<1>(p), kTwoTo126);
    a[0][3] = multiply_pairs(small_e2m1<1>(r), kTwoTo126);
    a[1][0] = multiply_pairs(small_e2m1<2>(p), kTwoTo126);
    a[1][1] = multiply_pairs(small_e2m1<2>(r), kTwoTo126);
    a[1][2] = multiply_pairs(small_e2m1<3>(p), kTwoTo126);
    a[1][3] = multiply_pairs(small_e2m1<3>(r), kTwoTo126);
  }
  __device__ __forceinline__ void
  accumulate(const unsigned* x, const float (*)[4], float* acc, int) const {
#pragma unroll
    for (int h = 0; h < 2; h++) {
      float c[4] = {0, 0, 0, 0};
      unsigned a[2][4];
      half_fragments(h ? q[0].y : q[0].x, h ? q[0].w : q[0].z, a);
      mma(c, a[0], x[4 * h], x[4 * h + 1]);
      mma(c, a[1], x[4 * h + 2], x[4 * h + 3]);
      // An exponent of 0 is 2^-127.
      float s0 = __uint_as_float(max(exponent_bits(0, h), 0x00400000u));
      float s1 = __uint_as_float(max(exponent_bits(1, h), 0x00400000u));
      acc[0] += s0 * c[0];
      acc[1] += s0 * c[1];
      acc[2] += s1 * c[2];
      acc[3] += s1 * c[3];
    }
  }
  __device__ __forceinline__ unsigned exponent_bits(int row, int h) const {
    return scales.exponent(row, h) << 23;
  }
  __device__ __forceinline__ void fragments(unsigned (*a)[4], int) const {
#pragma unroll
    for (int h = 0; h < 2; h++) {
      half_fragments(h ? q[0].y : q[0].x, h ? q[0].w : q[0].z, a + 2 * h);
#pragma unroll
      for (int row = 0; row < 2; row++) {
        unsigned s = max(scales.exponent(row, h) << 7, 0x40u) * 0x10001u;
#pragma unroll
        for (int i = 0; i < 4; i++) {
          unsigned& v = a[2 * h + i / 2][i % 2 * 2 + row];
          v = multiply_pairs(v, s);
        }
      }
    }
  }
};

template <>
struct Tile<WeightFormat::nvfp4, 16> {
  static constexpr int kScaleBytes = 64;
  static constexpr int kScaleTiles = 1;  // that share them
  static constexpr int kCodes = 1;
  static constexpr bool kNeedsSums = false;
  static constexpr int kSums = 1;
  static constexpr float kFactor = 65536;  // what fragments are too small by
  struct Scales {
    uint2 bytes;  // e4m3 of row g: 4 groups; of row g + 8

    __device__ __forceinline__ void read(const char* from, int g) {
      bytes = reinterpret_cast<const uint2*>(from)[g];
    }
  };
  uint4 q[1];
  Scales scales;

  // Both halves: the scale times 2^110.
  __device__ __forceinline__ unsigned scale(int row, int h, int t) const {
    unsigned byte =
        (row ? scales.bytes.y : scales.bytes.x) >> (16 * h + 8 * (t >> 1));
    unsigned s = ((byte & 0x7f) << 4) * 0x10001u;
    constexpr unsigned kTwoTo120 = 0x7B807B80;
    constexpr unsigned kTwoTo110 = 0x76807680;
    return multiply_pairs(multiply_pairs(s, kTwoTo120), kTwoTo110);
  }
  __device__ __forceinline__ void fragments(unsigned (*a)[4], int t) const {
#pragma unroll
    for (int h = 0; h < 2; h++) {
#pragma unroll
      for (int row = 0; row < 2; row++) {
        unsigned w = h ? (row ? q[0].w : q[0].y) : (row ? q[0].z : q[0].x);
        unsigned s = scale(row, h, t);
        a[2 * h][row] = multiply_pairs(small_e2m1<0>(w), s);
        a[2 * h][2 + row] = multiply_pairs(small_e2m1<1>(w), s);
        a[2 * h + 1][row] = multiply_pairs(small_e2m1<2>(w), s);
        a[2 * h + 1][2 + row] = multiply_pairs(small_e2m1<3>(w), s);
      }
    }
  }
  __device__ __forceinline__ void
  accumulate(const unsigned* x, const float (*)[4], float* acc, int t) const {
    unsigned a[4][4];
    fragments(a, t);
    float c[4] = {0, 0, 0, 0};
#pragma unroll
    for (int i = 0; i < 4; i++) {
      mma(c, a[i], x[2 * i], x[2 * i + 1]);
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
      acc[i] += kFactor * c[i];
    }
  }
};

template <>
struct Tile<WeightFormat::bfloat16, 0> {
  static constexpr int kScaleBytes = 0;
  static constexpr int kScaleTiles = 1;  // that share them
  static constexpr int kCodes = 4;  // rows g, g + 8 of half 0, then of half 1
  static constexpr bool kNeedsSums = false;
  static constexpr int kSums = 1;
  static constexpr float kFactor = 1;
  struct Scales {
    __device__ __forceinline__ void read(const char*, int) {}
  };
  uint4 q[4];
  Scales scales;

  __device__ __forceinline__ void fragments(unsigned (*a)[4], int) const {
#pragma unroll
    for (int h = 0; h < 2; h++) {
#pragma unroll
      for (int row = 0; row < 2; row++) {
        const uint4& v = q[2 * h + row];
        a[2 * h][row] = v.x;
        a[2 * h][2 + row] = v.y;
        a[2 * h + 1][row] = v.z;
        a[2 * h + 1][2 + row] = v.w;
      }
    }
  }
  __device__ __forceinline__ void
  accumulate(const unsigned* x, const float (*)[4], float* acc, int t) const {
    unsigned a[4][4];
    fragments(a, t);
#pragma unroll
    for (int i = 0; i < 4; i++) {
      mma(acc, a[i], x[2 * i], x[2 * i + 1]);
    }
  }
};

// Sums of x's columns over the groups of a tile, where its format needs them.
template <typename TILE>
__device__ __forceinline__ void sum_groups(const unsigned* x, float (*z)[4]) {
  if constexpr (TILE::kNeedsSums) {
    const unsigned ones[4] = {0x3f803f80, 0x3f803f80, 0x3f803f80, 0x3f803f80};
    constexpr int kSecond = TILE::kSums - 1;
    mma(z[0], ones, x[0], x[1]);
    mma(z[0], ones, x[2], x[3]);
    mma(z[kSecond], ones, x[4], x[5]);
    mma(z[kSecond], ones, x[6], x[7]);
  }
}

}  // namespace mlxx::kernels::cuda
