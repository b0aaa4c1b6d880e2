#pragma once

#include <string>

namespace mlxx::apps {

// Levels as --log-level and MLXX_LOG take them, quietest last.
inline constexpr const char* kLogLevels = "debug, info, warning, error, off";

// Sends the library's log to stderr. `level` is empty if the flag was not
// given: then MLXX_LOG counts, then "warning". invalid_request names an
// unknown level and where it came from.
void start_log_output(const std::string& level);

// Ends it, before what it uses goes away.
void stop_log_output();

}  // namespace mlxx::apps
