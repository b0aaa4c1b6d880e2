#pragma once

#include <optional>
#include <string>
#include <vector>

#include "apps/mlxx/generate_options.h"
#include "apps/mlxx/interrupt.h"
#include "mlxx/generate/pipeline.h"

namespace mlxx::apps {

// Finds, opens and loads the model that the options name. On a terminal stderr
// shows how far it is if it takes long. Ctrl-C gives cancelled.
// `trainable`: with weights that may be changed (models/load_trainable.h).
generate::Pipeline load_for_answers(
    const AnswerOptions& options,
    const InterruptScope& interrupt,
    bool trainable = false);

}  // namespace mlxx::apps
