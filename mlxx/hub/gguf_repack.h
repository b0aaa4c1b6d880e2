#pragma once

#include <cstdint>

#include "mlxx/base/mapped_file.h"
#include "mlxx/base/thread_pool.h"
#include "mlxx/core/mlx.h"
#include "mlxx/hub/checkpoint.h"
#include "mlxx/hub/gguf_file.h"

namespace mlxx::hub {

// GGUF's converter stores the rows of llama's q and k so that the two halves
// of each head alternate. `head_rows` rows at a time are put back: row
// `half * head_rows / 2 + i` of a head is the file's row `2 * i + half`.
// 0: the rows are in order.
struct RowOrder {
  int64_t head_rows = 0;

  int64_t source_row(int64_t row) const {
    if (head_rows == 0) {
      return row;
    }
    int64_t half_rows = head_rows / 2;
    int64_t in_head = row % head_rows;
    return row - in_head + 2 * (in_head % half_rows) + in_head / half_rows;
  }
};

// How MLX holds a tensor of this type; absent for numbers that are not
// quantized. unsupported, naming tensor and type, for what has no such form.
std::optional<Quantization> gguf_quantization(
    const GgufTensor& tensor,
    const std::string& place);

// A tensor in MLX's form, in one pass over the mapping, whose pages are given
// back as they are consumed. F32, F16 and BF16 stay what they are. A block of
// 32 becomes an affine group of 32 with exactly the same values
//   Q4_0: d (q - 8)     -> 4 bits, scale d, bias -8 d
//   Q4_1: d q + m       -> 4 bits, scale d, bias m
//   Q8_0: d q           -> 8 bits of q + 128, scale d, bias -128 d
// where scales and biases are float32 or float16; bfloat16 rounds them.
// Errors: bad_file if the file shrank; unsupported if a bias is too large for
// float16 (|d| above 511 in Q8_0), which float32 or bfloat16 avoid.
Weight repack_gguf(
    const MappedFile& file,
    const GgufTensor& tensor,
    const RowOrder& order,
    mx::Dtype scales,
    ThreadPool& pool);

}  // namespace mlxx::hub
