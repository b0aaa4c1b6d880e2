#pragma once

#include <cstdint>
#include <string>

#include "mlxx/server/api_server.h"

namespace mlxx::apps {

// One line of the access log, without its end: who, what, how it went; nothing
// that was asked or answered. `format` is "text" or "json".
std::string access_line(
    const std::string& format,
    const server::AccessRecord& record,
    int64_t unix_milliseconds);

}  // namespace mlxx::apps
