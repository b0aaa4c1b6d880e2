#pragma once

#include <cstddef>
#include <vector>

#include "mlxx/core/mlx.h"

namespace mlxx::plan {

// The most bytes that are alive at one time while MLX evaluates `outputs` on
// one stream, those of `before` included: arrays of an earlier evaluation that
// only the graph still reads (as caches let go of what they replace). Other
// arrays without inputs, weights and prompts, are not counted. Follows MLX's
// evaluation (mlx/transforms.cpp): inputs first, an array is freed after its
// last reader; views share the memory of what they show, and an operation
// writes into an input that nobody else reads, if it is as large. Nothing is
// evaluated.
// `ahead`: how many dispatches are handed to the device before the first is
// done; 0: as many as MLX lets wait, where arrays are small.
size_t peak_of_graph(
    const std::vector<mx::array>& outputs,
    const std::vector<mx::array>& before = {},
    size_t ahead = 0);

}  // namespace mlxx::plan
