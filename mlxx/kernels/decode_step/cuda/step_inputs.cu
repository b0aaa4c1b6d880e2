#include "mlxx/kernels/decode_step/cuda/step_inputs.h"

#include <cuda_runtime.h>

namespace mlxx::kernels::cuda {
namespace {

constexpr int kThreads = 256;

__global__ void change_table(
    const __grid_constant__ TableChanges changes,
    void** table) {
  for (int i = threadIdx.x; i < changes.count; i += blockDim.x) {
    table[changes.where[i]] = changes.block[i];
  }
}

__global__ void set_rows(
    const __grid_constant__ StepRows rows,
    const int32_t* tokens,
    int32_t* fixed_tokens,
    int32_t* fixed_lengths) {
  int row = threadIdx.x;
  if (row < rows.padded_rows) {
    bool real = row < rows.rows;
    fixed_tokens[row] = real ? tokens[row] : 0;
    fixed_lengths[row] = real ? rows.lengths[row] : 0;
  }
}

// Where 16-bit number `d` of a token is in its block.
__device__ int64_t place(const KvPart& part, int head, int token, int d) {
  int64_t index = int64_t{part.layer} * 2 + part.part;
  index = index * part.kv_heads + head;
  return (index * kKvBlockLength + token % kKvBlockLength) * part.head_size + d;
}

// Grid: tokens by heads by rows.
__global__ void write_kv(
    const __grid_constant__ KvPart part,
    const __grid_constant__ KvRows rows,
    const uint16_t* dense,
    const __grid_constant__ KvStrides strides,
    void* const* table,
    int table_stride) {
  int token = blockIdx.x;
  int head = blockIdx.y;
  int row = blockIdx.z;
  if (token >= rows.tokens[row]) {
    return;
  }
  int position = rows.first[row] + token;
  auto* block = static_cast<uint16_t*>(
      table[int64_t{row} * table_stride + position / kKvBlockLength]);
  const uint16_t* from =
      dense + row * strides.row + head * strides.head + token * strides.token;
  for (int d = threadIdx.x; d < part.head_size; d += blockDim.x) {
    block[place(part, head, position, d)] = from[d];
  }
}

__global__ void read_kv(
    const __grid_constant__ KvPart part,
    uint16_t* dense,
    void* const* blocks) {
  int token = blockIdx.x;
  int head = blockIdx.y;
  auto* block = static_cast<const uint16_t*>(blocks[token / kKvBlockLength]);
  uint16_t* to = dense + (int64_t{head} * part.tokens + token) * part.head_size;
  for (int d = threadIdx.x; d < part.head_size; d += blockDim.x) {
    to[d] = block[place(part, head, token, d)];
  }
}

int threads_of(const KvPart& part) {
  return part.head_size <= 64 ? 64 : 128;
}

}  // namespace

Status
launch_table_changes(const TableChanges& changes, void** table, Stream stream) {
  change_table<<<1, kThreads, 0, stream>>>(changes, table);
  return cudaGetLastError();
}

Status launch_step_rows(
    const StepRows& rows,
    const int32_t* tokens,
    int32_t* fixed_tokens,
    int32_t* fixed_lengths,
    Stream stream) {
  set_rows<<<1, kMaxRows, 0, stream>>>(
      rows,
      tokens,
      fixed_tokens,
      fixed_lengths);
  return cudaGetLastError();
}

Status launch_write_kv(
    const KvPart& part,
    const KvRows& rows,
    const void* dense,
    const KvStrides& strides,
    void* const* table,
    int table_stride,
    Stream stream) {
  dim3 grid(part.tokens, part.kv_heads, rows.rows);
  write_kv<<<grid, threads_of(part), 0, stream>>>(
      part,
      rows,
      static_cast<const uint16_t*>(dense),
      strides,
      table,
      table_stride);
  return cudaGetLastError();
}

Status launch_read_kv(
    const KvPart& part,
    void* const* blocks,
    void* dense,
    Stream stream) {
  dim3 grid(part.tokens, part.kv_heads);
  read_kv<<<grid, threads_of(part), 0, stream>>>(
      part,
      static_cast<uint16_t*>(dense),
      blocks);
  return cudaGetLastError();
}

}  // namespace mlxx::kernels::cuda
