// Quantized numbers as pairs of a 16-bit type, exactly. Text that MLX compiles
// (core/custom_kernel.h).
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace mlxx_half_pairs {

// The numbers 0..15 in bits 0..3 and 16..19, as a pair.
__device__ inline unsigned pair_of_nibbles(unsigned bits, __nv_bfloat16) {
  unsigned code = (bits & 0x000f000f) | 0x43004300;  // 128 + number
  __nv_bfloat162 pair = *reinterpret_cast<__nv_bfloat162*>(&code);
  pair = __hsub2(pair, __float2bfloat162_rn(128.0f));
  return *reinterpret_cast<unsigned*>(&pair);
}

__device__ inline unsigned pair_of_nibbles(unsigned bits, __half) {
  unsigned code = (bits & 0x000f000f) | 0x64006400;  // 1024 + number
  __half2 pair = *reinterpret_cast<__half2*>(&code);
  pair = __hsub2(pair, __float2half2_rn(1024.0f));
  return *reinterpret_cast<unsigned*>(&pair);
}

// The numbers 0..255 in the two lowest bytes, as a pair: exact in both types.
__device__ inline unsigned pair_of_bytes(unsigned bits, __nv_bfloat16) {
  float low = __uint_as_float(0x4b000000 | (bits & 255)) - 8388608.0f;
  float high = __uint_as_float(0x4b000000 | (bits >> 8 & 255)) - 8388608.0f;
  __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<unsigned*>(&pair);
}

__device__ inline unsigned pair_of_bytes(unsigned bits, __half) {
  unsigned code = __byte_perm(bits, 0x64, 0x4140);  // 1024 + number
  __half2 pair = *reinterpret_cast<__half2*>(&code);
  pair = __hsub2(pair, __float2half2_rn(1024.0f));
  return *reinterpret_cast<unsigned*>(&pair);
}

// number * scale + bias, rounded once.
__device__ inline unsigned
scaled(unsigned pair, __nv_bfloat16 scale, __nv_bfloat16 bias) {
  __nv_bfloat162 y = __hfma2(
      *reinterpret_cast<__nv_bfloat162*>(&pair),
      __bfloat162bfloat162(scale),
      __bfloat162bfloat162(bias));
  return *reinterpret_cast<unsigned*>(&y);
}

__device__ inline unsigned scaled(unsigned pair, __half scale, __half bias) {
  __half2 y = __hfma2(
      *reinterpret_cast<__half2*>(&pair),
      __half2half2(scale),
      __half2half2(bias));
  return *reinterpret_cast<unsigned*>(&y);
}

}  // namespace mlxx_half_pairs
