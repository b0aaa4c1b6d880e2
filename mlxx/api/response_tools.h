#pragma once

#include "mlxx/api/answer.h"
#include "mlxx/api/chat_tools.h"
#include "mlxx/api/field_reader.h"

namespace mlxx::api {

// tools (flat functions), tool_choice and parallel_tool_calls of
// /v1/responses. Adds "tools", "tool_choice" and "parallel_tool_calls" to
// `echo`, as the response repeats them.
ChatTools read_response_tools(
    const FieldReader& fields,
    const Limits& limits,
    OrderedJson& echo);

}  // namespace mlxx::api
