#pragma once

#include <string>

#include "mlxx/base/json.h"
#include "mlxx/eval/multiple_choice.h"
#include "mlxx/eval/perplexity.h"

namespace mlxx::apps {

// What `mlxx eval` prints: lines for people, or the same numbers as JSON.
std::string as_text(const eval::PerplexityReport& report);
std::string as_text(const eval::DivergenceReport& report);
std::string as_text(const eval::ChoiceReport& report);

OrderedJson as_json(const eval::PerplexityReport& report);
OrderedJson as_json(const eval::DivergenceReport& report);
OrderedJson as_json(const eval::ChoiceReport& report);

}  // namespace mlxx::apps
