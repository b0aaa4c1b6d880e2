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
// `training`: of adapters beside weights that stay, or of weights that may be
// changed (models/load_trainable.h).
enum class Training { none, adapters, weights };
generate::Pipeline load_for_answers(
    const AnswerOptions& options,
    const InterruptScope& interrupt,
    Training training = Training::none);

}  // namespace mlxx::apps
