#pragma once

#include "mlxx/kernels/decode_step/cuda/decoder_cuda.h"

namespace mlxx::kernels::cuda {

// What the benchmark varies.
struct StepTuning {
  size_t fetch_next = 0;  // bytes of the next ones that attention brings
  int few_splits = 4;     // of attention, up to 8 rows
  int many_splits = 2;
  int shapes[4] = {-1, -1, -1, -1};
  int ranks = 0;
  bool attention = true;  // left out, to time the rest
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
