#pragma once

#include <limits>
#include <string>
#include <utility>

#include "mlxx/base/json.h"
#include "mlxx/hub/rewritten_checkpoint.h"
#include "mlxx/nn/mamba2_mixer.h"

namespace mlxx::models {

// What recurrent and hybrid families share in reading their checkpoints.

// Depthwise convolutions as PyTorch has them, [C, 1, W] with W > 1, become
// [C, W, 1]: every three-dimensional tensor whose name ends in `ending`.
// Whether there was one, which tells a published checkpoint from one that
// MLX's converter wrote.
bool turn_convolutions(hub::TensorRewrite& tensors, std::string_view ending);

// Adds 1 to the vectors whose names end in one of `endings`: norms that are
// stored as differences from 1.
void add_one_to_norms(
    hub::TensorRewrite& tensors,
    const std::vector<std::string>& endings);

// The endings that Qwen's zero-centred norms have.
const std::vector<std::string>& qwen_norms();

// "time_step_limit", two numbers of which the second may be infinite, or the
// fallback where there is none.
std::pair<float, float> read_step_limits(
    const JsonView& config,
    std::pair<float, float> fallback);

// bad_file, naming `groups_key`, unless the groups divide the heads and the
// layer's inner width is of a size that can be.
void check_mamba2(
    const JsonView& config,
    const nn::Mamba2Spec& mixer,
    std::string_view groups_key);

inline constexpr float kNoLimit = std::numeric_limits<float>::infinity();

}  // namespace mlxx::models
