#pragma once

#include <filesystem>
#include <memory>

#include "mlxx/hub/checkpoint.h"

namespace mlxx::hub {

// One GGUF file under Hugging Face's names. Errors as open_checkpoint().
std::shared_ptr<const Checkpoint> open_gguf_checkpoint(
    const std::filesystem::path& path);

}  // namespace mlxx::hub
