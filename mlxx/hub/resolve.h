#pragma once

#include <filesystem>
#include <string>

namespace mlxx::hub {

// The catalogue name that every verb defaults to.
inline constexpr const char* kDefaultModel = "smollm2";

// MODEL as the command line takes it -> what open_checkpoint() takes: a
// catalogue name, a folder in Hugging Face layout, a .gguf file, or
// org/repo[@rev] that was pulled before. Never downloads. not_found says how
// to get the model and, for a near miss, what was probably meant.
std::filesystem::path resolve_model(const std::string& model);

}  // namespace mlxx::hub
