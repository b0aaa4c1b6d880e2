#pragma once

#include <string>

#include "mlxx/text/tool_formats/declared_format.h"

// Bodies of Lark rules for the arguments of one tool, following its schema.
// invalid_request, naming the tool, for what can't be enforced.
namespace mlxx::text {

// A JSON object.
std::string json_arguments(LarkWriter& lark, const ConstrainedTool& tool);

// Parameters between tags, in the declared order; those that are not required
// may be left out. Strings stand as they are, everything else as JSON.
struct TagLayout {
  std::string before_name;  // "<parameter="
  std::string after_name;   // ">\n"
  std::string close;        // "\n</parameter>\n"
  // In the place of after_name where the value is no string; "": the same.
  std::string after_other_name = {};
};
std::string tagged_arguments(
    LarkWriter& lark,
    const ConstrainedTool& tool,
    const TagLayout& layout);

// name=value, JSON values (which the reader takes for Python's).
std::string keyword_arguments(LarkWriter& lark, const ConstrainedTool& tool);

// {name:value,...} with strings between `quote`s, at any depth.
std::string bare_arguments(
    LarkWriter& lark,
    const ConstrainedTool& tool,
    const std::string& quote);

}  // namespace mlxx::text
