#pragma once

#include <string>
#include <string_view>

#include "mlxx/api/errors.h"

namespace mlxx::api {

// {"type": "error", "error": {"type", "message"}, "request_id"}, as Anthropic
// has it. No request_id if it is empty.
std::string anthropic_error_body(
    const ErrorReply& reply,
    std::string_view request_id = "");
// The same as the last event of a stream.
std::string anthropic_error_frame(
    const ErrorReply& reply,
    std::string_view request_id = "");

}  // namespace mlxx::api
