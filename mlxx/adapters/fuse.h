#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "mlxx/hub/checkpoint.h"

namespace mlxx::adapters {

struct FuseOptions {
  // All quantized weights become dense ones in the dtype of their scales.
  bool dequantize = false;
  // Quantized weights that the adapter changes get so many bits (affine);
  // absent: as they are.
  std::optional<int> bits;
  // Refused above this FuseReport::error, unless forced or all weights that
  // change become dense.
  double max_error = 0.5;
  bool force = false;
};

// What was written in place of one weight.
struct FusedWeight {
  std::string name;
  int bits = 0;  // 0: dense, where only rounding is lost
  // With W the weight before, D the change and F what was written:
  double survives = 1;  // (F - W).D / |D|^2: 1 all of it, 0 nothing
  double error = 0;     // |F - (W + D)| / |D|: from 1 on no better than W
};

struct FuseReport {
  std::vector<FusedWeight> weights;
  // Of all weights together.
  double survives = 1;
  double error = 0;
};

// A model with an adapter's changes in its weights, as a folder in MLX's format
// that mlx-lm loads: changed weights, the others as they are, a config.json
// that says what was written, the tokenizer's files. `adapter`: a folder that
// read_adapter() reads, or mlx-lm's of --fine-tune-type full. The folder
// appears as a whole; it must not exist, or be empty.
//
// A change smaller than a quantization step is lost when the weight is
// quantized again. That is measured before anything is written.
// Errors: those of read_adapter() and find_targets(); unsupported for a weight
// that the checkpoint holds in another form; invalid_request for a folder with
// something in it, or for an error above the bound, with what to do instead.
FuseReport fuse_adapter(
    std::shared_ptr<const hub::Checkpoint> checkpoint,
    const std::filesystem::path& adapter,
    const std::filesystem::path& out,
    const FuseOptions& options);

}  // namespace mlxx::adapters
