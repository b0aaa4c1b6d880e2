#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "mlxx/hub/model_name.h"

namespace mlxx::hub {

// "safetensors" or "gguf", by the files that lie in the folder; empty if there
// are no weights.
std::string weight_format(const std::filesystem::path& folder);

// What open_checkpoint() takes of a snapshot's folder: the folder itself with
// weights in safetensors, or one GGUF file in it (name.file, or the only one).
// Errors: not_found (no weights, no such file), invalid_request (several GGUF
// files and none chosen).
std::filesystem::path find_model_in_snapshot(
    const std::filesystem::path& folder,
    const RepoName& name);

// The model as it was pulled into `cache`; nothing if no snapshot of that
// revision is there. Errors as above.
std::optional<std::filesystem::path> find_in_hub_cache(
    const RepoName& name,
    const std::filesystem::path& cache);

}  // namespace mlxx::hub
