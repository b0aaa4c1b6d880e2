#pragma once

#include "decoder_cuda.h"

namespace mlxx::kernels::cuda {

// What the benchmark varies.
struct StepTuning {
  bool fetch_own = true;         // products bring their weights into L2 at once
  size_t fetch_next = 24 << 20;  // bytes of the next ones that attention brings
  int few_splits = 8;            // of attention, up to 8 rows
  int many_splits = 2;
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
