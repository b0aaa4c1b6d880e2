#pragma once

#include <vector>

#include "mlxx/adapters/adapter_file.h"

// PEFT's files have a module for each expert, "mlp.experts.3.up_proj"; here and
// in mlx-lm the experts of a layer are one stack.
namespace mlxx::adapters {

// Modules of experts joined to stacks under the name "mlp.experts.up_proj";
// others as they are. bad_file where one is missing or differs in shape, rank
// or scale; unsupported for DoRA.
std::vector<LowRank> join_experts(std::vector<LowRank> modules);

// Stacks "mlp.switch_mlp.up_proj" taken apart to modules of experts.
// unsupported for a stack of another name, which other programs hold in a form
// of their own.
std::vector<LowRank> part_experts(const std::vector<LowRank>& modules);

}  // namespace mlxx::adapters
