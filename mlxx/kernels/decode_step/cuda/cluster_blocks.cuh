#pragma once

// Blocks of one cluster: writing into each other's shared memory and waiting for
// one another. Nothing below Hopper, where clusters are of one block.

#include "mlxx/kernels/decode_step/cuda/device_math.cuh"

namespace mlxx::kernels::cuda {

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

}  // namespace mlxx::kernels::cuda
