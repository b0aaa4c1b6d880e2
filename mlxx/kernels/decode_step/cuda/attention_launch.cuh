#pragma once

#include "mlxx/kernels/decode_step/cuda/decode_attention.cuh"

namespace mlxx::kernels::cuda {

// Two launches if there is more than one group, otherwise one. hopper: the
// device has clusters; without them `splits` is 1.
Status launch_attention(
    const Attention& attention,
    int head_size,
    int rows,
    bool hopper,
    Stream stream);

}  // namespace mlxx::kernels::cuda
