#pragma once

#include <filesystem>
#include <memory>

#include "mlxx/hub/checkpoint.h"

namespace mlxx::hub {

// A folder in Hugging Face layout. Errors as open_checkpoint().
std::shared_ptr<const Checkpoint> open_safetensors_checkpoint(
    const std::filesystem::path& folder);

}  // namespace mlxx::hub
