#pragma once

#include <cstddef>
#include <cstdint>

#include "mlxx/kernels/decode_step/cuda/decoder_cuda.h"

// What changes from step to step, written into the fixed buffers that captured
// steps read, and keys and values between dense arrays and blocks. No MLX.

namespace mlxx::kernels::cuda {

// Entries of the block table that differ from what the device has; they travel
// as a kernel's arguments, so that no host memory is read later.
struct TableChanges {
  static constexpr int kMost = 224;
  int count = 0;
  uint32_t where[kMost];
  void* block[kMost];
};
Status
launch_table_changes(const TableChanges& changes, void** table, Stream stream);

// Tokens and lengths of a step's rows; rows past `rows` become token 0 at
// position 0.
struct StepRows {
  int rows = 0;
  int padded_rows = 0;
  int32_t lengths[kMaxRows];
};
Status launch_step_rows(
    const StepRows& rows,
    const int32_t* tokens,
    int32_t* fixed_tokens,
    int32_t* fixed_lengths,
    Stream stream);

// One layer's keys or values.
struct KvPart {
  int kv_heads = 0;
  int head_size = 0;
  int layer = 0;
  int part = 0;    // 0: keys, 1: values
  int tokens = 0;  // of each sequence, the most
};
// Which tokens of dense rows are written where: row r's first tokens[r] to
// first[r] and after it.
struct KvRows {
  int rows = 0;
  int32_t first[kMaxRows];
  int32_t tokens[kMaxRows];
};
// Numbers between neighbours.
struct KvStrides {
  int64_t row = 0;
  int64_t head = 0;
  int64_t token = 0;
};
// dense [rows, kv_heads, tokens, head_size] bfloat16; table: the rows' blocks,
// `table_stride` apart.
Status launch_write_kv(
    const KvPart& part,
    const KvRows& rows,
    const void* dense,
    const KvStrides& strides,
    void* const* table,
    int table_stride,
    Stream stream);
// The inverse, of the first `tokens` of one row, without strides: dense is
// [kv_heads, tokens, head_size].
Status launch_read_kv(
    const KvPart& part,
    void* const* blocks,
    void* dense,
    Stream stream);

}  // namespace mlxx::kernels::cuda
