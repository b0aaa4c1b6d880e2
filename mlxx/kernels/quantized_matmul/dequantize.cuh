// A quantized matrix in MLX's form as a dense one, for many rows of x: what a
// prompt's product reads instead. Text that MLX compiles (core/custom_kernel.h).
#pragma once
#include "half_pairs.cuh"

namespace mlxx_dequantize {

// In the order of mlxx::kernels::DeviceMode.
constexpr int kAffine = 0;
constexpr int kMxfp4 = 1;
constexpr int kNvfp4 = 2;
constexpr int kMxfp8 = 3;

constexpr int kUnit = 8;  // numbers that one load brings, whatever the bits
constexpr int kUnits = 4;  // of a thread

// The bits of unit `index`, the first number in the lowest ones.
template <int BITS>
__device__ unsigned long long load_unit(const unsigned* words, long long index) {
  if constexpr (BITS == 4) {
    return words[index];
  } else if constexpr (BITS == 8) {
    uint2 pair = reinterpret_cast<const uint2*>(words)[index];
    return pair.x | static_cast<unsigned long long>(pair.y) << 32;
  } else if constexpr (BITS == 2) {
    return reinterpret_cast<const unsigned short*>(words)[index];
  } else {
    const unsigned char* bytes =
        reinterpret_cast<const unsigned char*>(words) + index * BITS;
    unsigned long long bits = 0;
    for (int i = 0; i < BITS; ++i) {
      bits |= static_cast<unsigned long long>(bytes[i]) << (8 * i);
    }
    return bits;
  }
}

// e2m1 and e4m3 are the high bits of a half of another bias.
__device__ inline float e2m1(unsigned code) {
  unsigned short bits = (code & 8) << 12 | (code & 7) << 9;
  return __half2float(__ushort_as_half(bits)) * 16384.0f;
}

__device__ inline float e4m3(unsigned code) {
  unsigned short bits = (code & 128) << 8 | (code & 127) << 7;
  return __half2float(__ushort_as_half(bits)) * 256.0f;
}

__device__ inline float e8m0(unsigned code) {
  return code == 0 ? 5.877471754111438e-39f : __uint_as_float(code << 23);
}

// count: units in all. For what prompts mostly meet, 16-bit numbers of affine
// codes of 4 or 8 bits: conversions to and from float would take longer than
// memory does.
template <typename T, int BITS, int GROUP>
__device__ void dequantize_pairs(
    const unsigned* words,
    const T* scales,
    const T* biases,
    long long count,
    T* out) {
  using namespace mlxx_half_pairs;
  constexpr int kWords = BITS / 4;
  long long first =
      (long long)blockIdx.x * (blockDim.x * kUnits) + threadIdx.x;
  unsigned codes[kUnits][kWords];
  T scale[kUnits];
  T bias[kUnits];
#pragma unroll
  for (int u = 0; u < kUnits; ++u) {
    long long index = first + u * blockDim.x;
    index = index < count ? index : count - 1;
    if constexpr (kWords == 2) {
      uint2 pair = __ldg(reinterpret_cast<const uint2*>(words) + index);
      codes[u][0] = pair.x;
      codes[u][1] = pair.y;
    } else {
      codes[u][0] = __ldg(words + index);
    }
    long long group = index / (GROUP / kUnit);
    scale[u] = scales[group];
    bias[u] = biases[group];
  }
#pragma unroll
  for (int u = 0; u < kUnits; ++u) {
    long long index = first + u * blockDim.x;
    if (index >= count) {
      return;
    }
    uint4 unit;
    if constexpr (BITS == 4) {
      // Numbers 0 and 4, 1 and 5, ...
      unsigned p04 = scaled(pair_of_nibbles(codes[u][0], T()), scale[u], bias[u]);
      unsigned p15 =
          scaled(pair_of_nibbles(codes[u][0] >> 4, T()), scale[u], bias[u]);
      unsigned p26 =
          scaled(pair_of_nibbles(codes[u][0] >> 8, T()), scale[u], bias[u]);
      unsigned p37 =
          scaled(pair_of_nibbles(codes[u][0] >> 12, T()), scale[u], bias[u]);
      unit = make_uint4(
          __byte_perm(p04, p15, 0x5410),
          __byte_perm(p26, p37, 0x5410),
          __byte_perm(p04, p15, 0x7632),
          __byte_perm(p26, p37, 0x7632));
    } else {
      unsigned w0 = codes[u][0];
      unsigned w1 = codes[u][kWords - 1];
      unit = make_uint4(
          scaled(pair_of_bytes(w0, T()), scale[u], bias[u]),
          scaled(pair_of_bytes(w0 >> 16, T()), scale[u], bias[u]),
          scaled(pair_of_bytes(w1, T()), scale[u], bias[u]),
          scaled(pair_of_bytes(w1 >> 16, T()), scale[u], bias[u]));
    }
    reinterpret_cast<uint4*>(out)[index] = unit;
  }
}

// The same for every form and type.
template <typename T, typename S, int MODE, int BITS, int GROUP>
__device__ void dequantize(
    const unsigned* words,
    const S* scales,
    const S* biases,
    long long count,
    T* out) {
  long long first =
      (long long)blockIdx.x * (blockDim.x * kUnits) + threadIdx.x;
  unsigned long long bits[kUnits];
  float scale[kUnits];
  float bias[kUnits];
#pragma unroll
  for (int u = 0; u < kUnits; ++u) {
    long long index = first + u * blockDim.x;
    bias[u] = 0;
    if (index < count) {
      bits[u] = load_unit<BITS>(words, index);
      long long group = index * kUnit / GROUP;
      if constexpr (MODE == kAffine) {
        scale[u] = static_cast<float>(scales[group]);
        bias[u] = static_cast<float>(biases[group]);
      } else if constexpr (MODE == kNvfp4) {
        scale[u] = e4m3(scales[group]);
      } else {
        scale[u] = e8m0(scales[group]);
      }
    }
  }
#pragma unroll
  for (int u = 0; u < kUnits; ++u) {
    long long index = first + u * blockDim.x;
    if (index >= count) {
      return;
    }
    union {
      T numbers[kUnit];
      uint4 parts[kUnit * sizeof(T) / 16];
    } unit;
#pragma unroll
    for (int i = 0; i < kUnit; ++i) {
      unsigned code = (bits[u] >> (i * BITS)) & ((1u << BITS) - 1);
      float number;
      if constexpr (MODE == kAffine) {
        number = static_cast<float>(code);
      } else if constexpr (MODE == kMxfp8) {
        number = e4m3(code);
      } else {
        number = e2m1(code);
      }
      unit.numbers[i] = static_cast<T>(scale[u] * number + bias[u]);
    }
    uint4* to = reinterpret_cast<uint4*>(out + index * kUnit);
#pragma unroll
    for (int i = 0; i < (int)(sizeof(unit.parts) / sizeof(uint4)); ++i) {
      to[i] = unit.parts[i];
    }
  }
}

}  // namespace mlxx_dequantize
