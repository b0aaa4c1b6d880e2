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
// quantized there. unsupported, naming tensor and type, for what cannot be
// read.
std::optional<Quantization> gguf_quantization(
    const GgufTensor& tensor,
    const std::string& place);

// TensorInfo::loads_as: "F32" for a quantized type that MLX cannot hold.
std::string gguf_loads_as(const GgufTensor& tensor);

// A tensor in MLX's form, in one pass over the mapping, whose pages are given
// back as they are consumed. F32, F16 and BF16 stay what they are. A type
// whose values an affine group can have exactly becomes one:
//   Q4_0: d (q - 8)      -> 4 bits, groups of 32, scale d, bias -8 d
//   Q4_1: d q + m        -> 4 bits, groups of 32, scale d, bias m
//   Q5_0, Q5_1           -> 5 bits, alike
//   Q8_0: d q            -> 8 bits of q + 128, scale d, bias -128 d
//   Q4_K, Q5_K: d s q - e m -> 4 or 5 bits, scale d s, bias -e m
//   Q3_K: d s q          -> 8 bits of 128 - s q, groups of 128, scale -d
//   IQ4_NL, IQ4_XS: d v, d s v -> 8 bits of v + 128
//   MXFP4                -> mxfp4
// with scales and biases in float32 (or float16 where the file has them so;
// rounded otherwise). Q2_K and Q6_K have groups of 16, which MLX has not: they
// are written out in float32, exactly but for the one rounding of Q2_K's sum.
// Errors: bad_file if the file shrank; unsupported if a scale or bias is too
// large for float16 (|d| above 511 in Q8_0), which float32 or bfloat16 avoid.
Weight repack_gguf(
    const MappedFile& file,
    const GgufTensor& tensor,
    const RowOrder& order,
    mx::Dtype scales,
    ThreadPool& pool);

}  // namespace mlxx::hub
