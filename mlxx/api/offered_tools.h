#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "mlxx/api/chat_tools.h"
#include "mlxx/base/json.h"

// ChatTools from the tools of protocols that write them otherwise than
// OpenAI's chat.
namespace mlxx::api {

// One function as OpenAI has it. `reader` is the tool's, which is asked for
// "strict" as well; `parameters` may be null. 400 for a name or a schema out of
// bounds.
OrderedJson function_tool(
    const FieldReader& reader,
    const std::string& name,
    const std::string& description,
    const OrderedJson* parameters,
    std::string_view parameters_name,
    const Limits& limits);

// 400 unless the model itself may call the tool, at once: `code` is what does
// not run here and could.
void check_direct_call(const FieldReader& tool, std::string_view code);

// All may be called; 400 for two of one name.
ChatTools offer_tools(const FieldReader& fields, OrderedJson listed);

// Only those of these names may be called. False if one is unknown or there is
// none.
bool allow_tools(ChatTools& tools, const std::vector<std::string>& names);
// That one must be called.
bool name_tool(ChatTools& tools, const std::string& name);
void forbid_tools(ChatTools& tools);

}  // namespace mlxx::api
