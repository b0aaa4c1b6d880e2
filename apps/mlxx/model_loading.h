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
generate::Pipeline load_for_answers(
    const AnswerOptions& options,
    const InterruptScope& interrupt);

}  // namespace mlxx::apps
