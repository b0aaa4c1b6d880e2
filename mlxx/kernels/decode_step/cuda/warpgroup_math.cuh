#pragma once

// Hopper's tensor cores for groups of four warps, its bulk copies and barriers
// in shared memory. Elsewhere the same products by single warps.

#include "mlxx/kernels/decode_step/cuda/device_math.cuh"

namespace mlxx::kernels::cuda {

__device__ __forceinline__ void barrier_init(unsigned at, unsigned count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0],%1;" ::"r"(at), "r"(count));
}
__device__ __forceinline__ void barrier_expect(unsigned at, unsigned bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _,[%0],%1;" ::"r"(at),
               "r"(bytes)
               : "memory");
}
__device__ __forceinline__ void barrier_arrive(unsigned at) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _,[%0];" ::"r"(at) : "memory");
}
__device__ __forceinline__ void barrier_wait(unsigned at, unsigned parity) {
  asm volatile(
      "{\n.reg .pred done;\n"
      "again: mbarrier.try_wait.parity.shared::cta.b64 done,[%0],%1;\n"
      "@!done bra again;\n}" ::"r"(at),
      "r"(parity)
      : "memory");
}
__device__ __forceinline__ void
bulk_copy(unsigned to, const void* from, unsigned bytes, unsigned barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0],[%1],%2,[%3];" ::"r"(to),
      "l"(from),
      "r"(bytes),
      "r"(barrier)
      : "memory");
}

// An address of this block's shared memory, in another block of the cluster.
__device__ __forceinline__ unsigned of_rank(unsigned address, int rank) {
  unsigned r = 0;
#if __CUDA_ARCH__ >= 900
  asm("mapa.shared::cluster.u32 %0,%1,%2;" : "=r"(r) : "r"(address), "r"(rank));
#endif
  return r;
}
__device__ __forceinline__ void send(unsigned to, const float4& v) {
#if __CUDA_ARCH__ >= 900
  asm volatile("st.shared::cluster.v4.f32 [%0],{%1,%2,%3,%4};" ::"r"(to),
               "f"(v.x),
               "f"(v.y),
               "f"(v.z),
               "f"(v.w)
               : "memory");
#endif
}
__device__ __forceinline__ void send(unsigned to, const float2& v) {
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "st.shared::cluster.v2.f32 [%0],{%1,%2};" ::"r"(to), "f"(v.x), "f"(v.y)
      : "memory");
#endif
}
// Of all blocks of the cluster: what was sent before is there after the wait.
// Lanes that went different ways would arrive several times.
__device__ __forceinline__ void cluster_arrive() {
#if __CUDA_ARCH__ >= 900
  __syncwarp();
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
#endif
}
// The same where nothing was sent.
__device__ __forceinline__ void cluster_arrive_empty() {
#if __CUDA_ARCH__ >= 900
  __syncwarp();
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
#endif
}
__device__ __forceinline__ void cluster_wait() {
#if __CUDA_ARCH__ >= 900
  __syncwarp();
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
}

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define MLXX_WARPGROUPS 1
#endif

__device__ __forceinline__ void group_fence() {
#ifdef MLXX_WARPGROUPS
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#endif
}
__device__ __forceinline__ void group_commit() {
#ifdef MLXX_WARPGROUPS
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#endif
}
template <int N>
__device__ __forceinline__ void group_wait() {
#ifdef MLXX_WARPGROUPS
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
#endif
}

// Describes matrices of 8 rows by 8 columns (cores): those of 8 more columns
// lie CORES * 128 bytes further, those of 8 more rows 128. Plus n: 16 n bytes
// on.
template <int CORES>
__device__ __forceinline__ unsigned long long cores_at(unsigned address) {
  return static_cast<unsigned long long>(address >> 4) |
      static_cast<unsigned long long>(CORES * 8) << 16 |
      static_cast<unsigned long long>(8) << 32;
}

// acc[64, 8 CORES] += a[64, 16] b[16, 8 CORES]
#define F4(i) "+f"(c[i][0]), "+f"(c[i][1]), "+f"(c[i][2]), "+f"(c[i][3])
template <int CORES>
__device__ __forceinline__ void
group_mma(float (*c)[4], const unsigned* a, unsigned long long b) {
#ifdef MLXX_WARPGROUPS
  if constexpr (CORES == 2) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 "
        "{%0,%1,%2,%3,%4,%5,%6,%7},{%8,%9,%10,%11},%12,1,1,1,0;"
        : F4(0), F4(1)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
  } else if constexpr (CORES == 4) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 "
        "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15},"
        "{%16,%17,%18,%19},%20,1,1,1,0;"
        : F4(0), F4(1), F4(2), F4(3)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
  } else {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
        "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%"
        "19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31},"
        "{%32,%33,%34,%35},%36,1,1,1,0;"
        : F4(0), F4(1), F4(2), F4(3), F4(4), F4(5), F4(6), F4(7)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
  }
#else
  const unsigned lane = threadIdx.x & 31;
  const unsigned at = static_cast<unsigned>(b & 0x3fff) * 16 +
      ((lane >> 3 & 1) * CORES + (lane >> 4)) * 128 + (lane & 7) * 16;
#pragma unroll
  for (int n = 0; n < CORES; n += 2) {
    unsigned v[4];
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3},[%4];"
                 : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3])
                 : "r"(at + n * 128));
    mma(c[n], a, v[0], v[1]);
    mma(c[n + 1], a, v[2], v[3]);
  }
#endif
}
#undef F4

}  // namespace mlxx::kernels::cuda
