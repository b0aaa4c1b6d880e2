#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace mlxx::adapters {

// Names that other programs use for the same module, itself first.
std::vector<std::string> names_of(std::string_view module);

// The parts of a module that models do not keep whole, in their order.
std::vector<std::string> parts_of(std::string_view module);

// "mlp.switch_mlp.up_proj" -> that expert's names in checkpoints that have each
// by itself: "mlp.experts.3.up_proj", "mlp.experts.3.w3". Empty for a module
// that is no stack.
std::vector<std::string> expert_names_of(std::string_view module, int expert);

}  // namespace mlxx::adapters
