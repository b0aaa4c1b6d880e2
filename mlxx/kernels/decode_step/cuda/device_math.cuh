#pragma once

// Instructions that kernels of the decode step share.

#include <cuda_bf16.h>
#include <cuda_runtime.h>

namespace mlxx::kernels::cuda {

using bf16 = __nv_bfloat16;

// c[16, 8] += a[16, 16] b[16, 8]; lane (g, t) = (lane / 4, lane % 4) holds a:
// rows g, g + 8, columns 2t, 2t + 1, then the same 8 columns further; b: rows
// 2t, 2t + 1, then 8 further, of column g; c: rows g, g + 8, columns 2t, 2t
// + 1.
__device__ __forceinline__ void
mma(float* c, const unsigned* a, unsigned b0, unsigned b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};\n"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// 16 bytes that are read once in a step.
__device__ __forceinline__ uint4 load_once(const uint4* p) {
  uint4 v;
  asm volatile(
      "ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0,%1,%2,%3},[%4];"
      : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
      : "l"(p));
  return v;
}
// 16 bytes into shared memory, asynchronously and past L1.
__device__ __forceinline__ void copy_16(unsigned to, const void* from) {
  asm volatile(
      "cp.async.cg.shared.global.L2::128B [%0],[%1],16;" ::"r"(to),
      "l"(from));
}
__device__ __forceinline__ void end_copies() {
  asm volatile("cp.async.commit_group;");
}
// All but the newest N groups have arrived, as this thread sees it.
template <int N>
__device__ __forceinline__ void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}
__device__ __forceinline__ unsigned shared_address(const void* p) {
  return static_cast<unsigned>(__cvta_generic_to_shared(p));
}

// Programmatic dependent launch: the next kernel may start; what earlier ones
// wrote is there.
__device__ __forceinline__ void let_next_start() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}
__device__ __forceinline__ void wait_for_previous() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

__device__ __forceinline__ unsigned pack_pair(float low, float high) {
  __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<unsigned*>(&pair);
}
__device__ __forceinline__ unsigned multiply_pairs(unsigned a, unsigned b) {
  __nv_bfloat162 r = __hmul2(
      *reinterpret_cast<__nv_bfloat162*>(&a),
      *reinterpret_cast<__nv_bfloat162*>(&b));
  return *reinterpret_cast<unsigned*>(&r);
}
__device__ __forceinline__ unsigned
multiply_add_pairs(unsigned a, unsigned b, unsigned c) {
  __nv_bfloat162 r = __hfma2(
      *reinterpret_cast<__nv_bfloat162*>(&a),
      *reinterpret_cast<__nv_bfloat162*>(&b),
      *reinterpret_cast<__nv_bfloat162*>(&c));
  return *reinterpret_cast<unsigned*>(&r);
}
__device__ __forceinline__ unsigned subtract_pairs(unsigned a, unsigned b) {
  __nv_bfloat162 r = __hsub2(
      *reinterpret_cast<__nv_bfloat162*>(&a),
      *reinterpret_cast<__nv_bfloat162*>(&b));
  return *reinterpret_cast<unsigned*>(&r);
}
__device__ __forceinline__ float low_half(unsigned pair) {
  return __uint_as_float(pair << 16);
}
__device__ __forceinline__ float high_half(unsigned pair) {
  return __uint_as_float(pair & 0xffff0000u);
}

__device__ __forceinline__ float sum_of_warp(float v) {
#pragma unroll
  for (int s = 16; s; s >>= 1) {
    v += __shfl_xor_sync(~0u, v, s);
  }
  return v;
}

// How the next product reads its input [rows, stride]: rows one after another,
// or, for the tensor cores of wide products, matrices of 8 rows by 8 columns
// (cores): of 32 columns, core 2 m + h holds columns 8 t + 4 m + 2 h + {0, 1}
// for t = 0..3; cores of 8 more rows follow, then those of more columns.
struct Rows {
  bf16* data = nullptr;
  int stride = 0;     // columns, padded to a tile's
  int row_cores = 0;  // 0: rows; otherwise rows / 8

  __device__ __forceinline__ size_t at(int row, int column) const {
    if (row_cores == 0) {
      return static_cast<size_t>(row) * stride + column;
    }
    int t = column >> 3 & 3;
    int core = (column >> 5) * 4 + (column >> 1 & 3);
    core = core * row_cores + (row >> 3);
    return static_cast<size_t>(core) * 64 + (row & 7) * 8 + 2 * t +
        (column & 1);
  }
};

}  // namespace mlxx::kernels::cuda
