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

template <int D>
Status launch_sized(const Attention& p, int rows, Stream stream, bool hopper) {
  constexpr int kWarps = 4;
  int per_kv = p.heads / p.kv_heads;
  int head_tiles = (per_kv + kHeadTile - 1) / kHeadTile;
  dim3 grid(p.splits * p.groups, p.kv_heads * head_tiles, rows);
  return launch(
      decode_attention<D, kWarps>,
      {grid, kWarps * 32, 0, p.splits, hopper},
      stream,
      p);
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
