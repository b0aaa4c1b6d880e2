#include "mlxx/kernels/decode_step/cuda/attention_launch.cuh"

#include "mlxx/kernels/decode_step/cuda/kernel_launch.cuh"

namespace mlxx::kernels::cuda {

__global__ void join_groups(const __grid_constant__ Attention p) {
  let_next_start();
  wait_for_previous();
  const int head = blockIdx.x;
  const int row = blockIdx.y;
  const int d = threadIdx.x;
  const size_t at = (static_cast<size_t>(row) * p.heads + head) * p.groups;
  float now = -INFINITY;
  for (int i = 0; i < p.groups; i++) {
    now = fmaxf(now, p.group_states[at + i].x);
  }
  float weights = 0;
  if (p.sinks) {
    float sink = p.sinks[head] * kLog2E;
    now = fmaxf(now, sink);
  }
  float sum = 0;
  for (int i = 0; i < p.groups; i++) {
    float2 state = p.group_states[at + i];
    if (state.x == -INFINITY) {
      continue;
    }
    float shrink = exp2f(state.x - now);
    sum += p.group_sums[(at + i) * blockDim.x + d] * shrink;
    weights += state.y * shrink;
  }
  if (p.sinks) {
    weights += exp2f(p.sinks[head] * kLog2E - now);
  }
  p.out.data[p.out.at(row, head * static_cast<int>(blockDim.x) + d)] =
      __float2bfloat16(sum / weights);
}

namespace {

// Sums do not depend on how far ahead a warp's ring is filled.
template <int D, int DEPTH>
Status launch_deep(const Attention& p, dim3 grid, Stream stream, bool hopper) {
  return launch(
      decode_attention<D, attention_warps(D), DEPTH>,
      {grid,
       attention_warps(D) * 32,
       attention_shared<D, DEPTH>(),
       p.splits,
       hopper},
      stream,
      p);
}

template <int D>
Status launch_sized(Attention p, int rows, Stream stream, bool hopper) {
  int per_kv = p.heads / p.kv_heads;
  int head_tiles = (per_kv + kHeadTile - 1) / kHeadTile;
  // A share of a head's numbers is a multiple of 4.
  while (D / 4 % p.splits != 0) {
    p.splits /= 2;
  }
  dim3 grid(p.splits * p.groups, p.kv_heads * head_tiles, rows);
  int device = 0;
  int shared = 0;
  Status status = cudaGetDevice(&device);
  if (status == cudaSuccess) {
    status = cudaDeviceGetAttribute(
        &shared,
        cudaDevAttrMaxSharedMemoryPerBlockOptin,
        device);
  }
  if (status != cudaSuccess) {
    return status;
  }
  constexpr int kFixed = 24 * 1024;  // more than the kernel has of a fixed size
  return static_cast<int>(attention_shared<D, 2>()) + kFixed <= shared
      ? launch_deep<D, 2>(p, grid, stream, hopper)
      : launch_deep<D, 1>(p, grid, stream, hopper);
}

}  // namespace

Status launch_attention(
    const Attention& p,
    int head_size,
    int rows,
    bool hopper,
    Stream stream) {
  Status status = cudaErrorInvalidValue;
  switch (head_size) {
    case 64:
      status = launch_sized<64>(p, rows, stream, hopper);
      break;
    case 80:
      status = launch_sized<80>(p, rows, stream, hopper);
      break;
    case 96:
      status = launch_sized<96>(p, rows, stream, hopper);
      break;
    case 128:
      status = launch_sized<128>(p, rows, stream, hopper);
      break;
    case 256:
      status = launch_sized<256>(p, rows, stream, hopper);
      break;
  }
  if (status != cudaSuccess || p.groups == 1) {
    return status;
  }
  return launch(
      join_groups,
      {dim3(p.heads, rows), head_size, 0, 1, hopper},
      stream,
      p);
}

}  // namespace mlxx::kernels::cuda
