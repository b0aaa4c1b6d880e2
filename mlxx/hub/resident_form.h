#pragma once

#include <cstdint>
#include <string>

#include "mlxx/hub/checkpoint.h"

namespace mlxx::hub {

// What a tensor is in memory once it is loaded.
struct ResidentForm {
  std::string name;  // "4-bit affine in groups of 32", "F32"
  uint64_t bytes;    // in MLX's form; a kernel's own is no larger
};

// `checkpoint_format` is Checkpoint::format(): the scales of safetensors stay
// what they are, those of GGUF become what the file's are made of: float16, or
// float32 where they are products (exactly, on the CPU).
ResidentForm resident_form(
    const TensorInfo& tensor,
    const std::string& checkpoint_format);

}  // namespace mlxx::hub
