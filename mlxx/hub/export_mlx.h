#pragma once

#include <filesystem>

#include "mlxx/hub/checkpoint.h"

namespace mlxx::hub {

// Writes the checkpoint as a folder that mlx-lm loads: config.json with
// "quantization", model.safetensors in MLX's packing, the tokenizer and the
// chat templates. GGUF's scales become `dtype.scales`, and so do its numbers
// that are not quantized, so that mlx-lm computes in one dtype. The folder is
// made; files in it are replaced.
// Errors: as Checkpoint::load; internal if it cannot be written.
void write_mlx_checkpoint(
    const Checkpoint& checkpoint,
    const std::filesystem::path& folder,
    const LoadDtype& dtype = {});

}  // namespace mlxx::hub
