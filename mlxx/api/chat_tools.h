#pragma once

#include <memory>
#include <string>

#include "mlxx/api/answer.h"
#include "mlxx/api/field_reader.h"
#include "mlxx/text/tool_format.h"

namespace mlxx::api {

// A JSON value in structs of headers, where its type is not complete.
using SharedJson = std::shared_ptr<const OrderedJson>;

// The tools of a chat and which of them may be called.
struct ChatTools {
  SharedJson listed;    // for the prompt; a list, or null for none
  SharedJson callable;  // those that tool_choice allows; null for none
  text::ToolChoice choice = text::ToolChoice::none;
  std::string named;
  bool parallel = true;

  bool any() const {
    return choice != text::ToolChoice::none;
  }
};

// Lists of tools as OpenAI has them: {"type": "function", "function": {"name",
// "description", "parameters", "strict"}}.
// tools, tool_choice and parallel_tool_calls of a chat.
ChatTools read_chat_tools(const FieldReader& fields, const Limits& limits);

// What the names of functions may look like: 1 to 128 letters, digits and
// _ - . / : without spaces.
bool is_function_name(std::string_view name);

}  // namespace mlxx::api
