#pragma once

#include "mlxx/kernels/decode_step/cuda/decoder_cuda.h"

namespace mlxx::kernels::cuda {

// What the benchmark varies.
struct StepTuning {
  int few_splits = 2;   // of attention, up to 8 rows
  int many_splits = 1;  // above
  // RowsShape of qkv, o, down, gate and up; -1: as product_shape() has it.
  int shapes[4] = {-1, -1, -1, -1};
  int ranks = 0;  // at most so many of a wide product; 0: any
  // Left out, to time the rest.
  bool attention = true;
  bool products = true;
};

Status launch_tuned_step(
    const Decoder& decoder,
    const StepInput& input,
    const StepTuning& tuning,
    void* workspace,
    float* logits,
    Stream stream);

}  // namespace mlxx::kernels::cuda
