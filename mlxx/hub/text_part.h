#pragma once

#include <memory>

#include "mlxx/hub/checkpoint.h"

namespace mlxx::hub {

// Of a checkpoint that also sees or hears (gemma3, gemma4, mistral3, qwen3_vl),
// the language model alone, as if it had been published so: config() is
// "text_config" with the model_type of the text family and what mlx-lm adds,
// tensors have the names that they have there, and those of the other parts are
// in dropped(), with a line in the log. Any other checkpoint comes back as it
// is.
// bad_file if there is no text_config, or no language model among the tensors.
std::shared_ptr<const Checkpoint> text_part(
    std::shared_ptr<const Checkpoint> checkpoint);

}  // namespace mlxx::hub
