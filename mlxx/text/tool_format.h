#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "mlxx/base/json.h"
#include "mlxx/text/answer_parser.h"
#include "mlxx/text/tokenizer.h"

namespace mlxx::text {

// How models mark reasoning, by their template. Absent: the model has none.
struct ReasoningFormat {
  std::string name;   // "think", "harmony", ...
  std::string begin;  // "<think>"
  std::string end;    // "</think>"
};
std::optional<ReasoningFormat> find_reasoning_format(
    std::string_view template_source);

// Which tools may be called, as tool_choice says.
enum class ToolChoice { none, automatic, required, named };

struct ToolUse {
  // OpenAI's list: [{"type": "function", "function": {"name", "description",
  // "parameters", "strict"}}, ...].
  const OrderedJson* tools = nullptr;
  ToolChoice choice = ToolChoice::automatic;
  std::string named;     // of ToolChoice::named
  bool parallel = true;  // more than one call in an answer
};

// How a family of models writes tool calls.
class ToolFormat {
 public:
  virtual ~ToolFormat() = default;
  virtual std::string_view name() const = 0;  // "json_tags", "llama3_json"...
  // Control tokens whose text the parser needs to see; else they are dropped
  // from the text of an answer.
  virtual std::vector<std::string> visible_tokens() const = 0;
  // `reasoning_open`: the prompt ends inside of reasoning. `tools` may be
  // null: then nothing is a call.
  virtual std::unique_ptr<AnswerParser> make_parser(
      const std::optional<ReasoningFormat>& reasoning,
      bool reasoning_open,
      const OrderedJson& tools) const = 0;
  // A Lark grammar (llguidance's dialect) for what follows the reasoning, in
  // which every call has the declared arguments. Nothing if the choice leaves
  // nothing to constrain (automatic, and no tool is strict).
  // invalid_request for a schema that can't be enforced, naming the tool.
  virtual std::optional<std::string> constraint(const ToolUse& use) const = 0;
};

// All formats, for tests and documents.
const std::vector<const ToolFormat*>& tool_formats();
// By name; not_found, naming what is known.
const ToolFormat& tool_format_named(std::string_view name);
// The one that the template teaches the model; JSON in tags if it says nothing.
const ToolFormat& find_tool_format(std::string_view template_source);

}  // namespace mlxx::text
