#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "mlxx/text/tool_formats/declared_format.h"

namespace mlxx::text {

// The tools that a constraint has to allow, with the schemas it has to follow
// (of tools that are not strict when the choice is free: any object). Nothing
// if nothing is to be constrained. invalid_request for a list of another
// shape, a name that can't be one, or a named tool that is not in it.
std::optional<std::vector<ConstrainedTool>> constrained_tools(
    const ToolUse& use);

// The name of a rule for a call of any of them. Each tool's own rules are
// compiled first, so that what can't be enforced is refused with its name.
std::string one_of_the_tools(
    LarkWriter& lark,
    const std::vector<ConstrainedTool>& tools,
    const std::function<std::string(LarkWriter&, const ConstrainedTool&)>&
        call);

// The whole grammar, of a format of sections that start with `openings`.
std::optional<std::string> constrain_calls(
    const CallSyntax& syntax,
    const std::vector<std::string>& openings,
    const ToolUse& use);

}  // namespace mlxx::text
