#pragma once

#include <filesystem>
#include <string>

namespace mlxx::hub {

// The catalogue name that every verb defaults to.
inline constexpr const char* kDefaultModel = "smollm2";

// MODEL as the command line takes it -> what open_checkpoint() takes: a
// catalogue name, a folder in Hugging Face layout, a .gguf file, or
// org/repo[@rev][:file] that was pulled before. Never downloads. Errors:
// not_found, with how to get the model and, for a near miss, what was probably
// meant; bad_file for a damaged model of the catalogue; invalid_request for a
// repository with several GGUF files of which none is chosen.
std::filesystem::path resolve_model(const std::string& model);

}  // namespace mlxx::hub
