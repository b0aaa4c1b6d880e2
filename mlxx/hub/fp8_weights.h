#pragma once

#include <string>
#include <vector>

#include "mlxx/hub/rewritten_checkpoint.h"

namespace mlxx::hub {

// Replaces `weight` (F8_E4M3 [..., out, in], listed as the bytes) and `scale`
// by one matrix `weight`: each number times the scale of its block of
// `block` = {rows, columns}, of its row ([out, 1] or [out]), or of all (one
// number). Written out in bfloat16; scales that are powers of two (F8_E8M0)
// over blocks of a multiple of 32 columns stay packed, as mxfp8. bad_file if
// the shapes do not fit.
void convert_fp8_matrix(
    TensorRewrite& tensors,
    const std::string& weight,
    const std::string& scale,
    const std::vector<int64_t>& block);

// Scales of activations and of caches, which are not quantized here.
void drop_activation_scales(TensorRewrite& tensors);

}  // namespace mlxx::hub
