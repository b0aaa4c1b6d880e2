#include <nlohmann/json.hpp>

#include "mlxx/text/tool_formats/answer_divider.h"
#include "mlxx/text/tool_formats/declared_format.h"
#include "mlxx/text/tool_formats/tool_constraint.h"

namespace mlxx::text {

std::unique_ptr<AnswerParser> MarkedToolFormat::make_parser(
    const std::optional<ReasoningFormat>& reasoning,
    bool reasoning_open,
    const OrderedJson& tools) const {
  Sections sections;
  if (tools.is_array() && !tools.empty()) {
    sections = declared_.sections(std::make_shared<OrderedJson>(tools));
  }
  return std::make_unique<AnswerDivider>(
      reasoning,
      reasoning_open,
      std::move(sections));
}

std::optional<std::string> MarkedToolFormat::constraint(
    const ToolUse& use) const {
  return constrain_calls(
      declared_.syntax,
      declared_.sections(nullptr).openings,
      use);
}

}  // namespace mlxx::text
