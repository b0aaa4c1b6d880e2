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
  // Control tokens, so that it may begin anywhere; else only at the start of
  // an answer, since prose may speak of "<think>".
  bool anywhere = false;
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
  // Of the model: markers that are control tokens there become such in the
  // grammar. Null: markers are ordinary text.
  const Tokenizer* tokenizer = nullptr;
};

// How a family of models writes tool calls.
//
// What a parser makes of odd answers: arguments that are no valid JSON come as
// the model wrote them, absent ones and null as {}. A name that was not
// declared is kept as written; the caller decides (the protocols deliver it:
// the client knows best what it can run). An opening marker that no call
// follows is content, and so is a call that was cut off before its name.
class ToolFormat {
 public:
  virtual ~ToolFormat() = default;
  virtual std::string_view name() const = 0;  // "json_tags", "llama3_json"...
  // Control tokens whose text the parser needs to see; else they are dropped
  // from the text of an answer. See markup_tokens() for those of reasoning.
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

// Control tokens that an answer's text must show for the parser: those of the
// format, and the markers of reasoning. They need not exist in a vocabulary.
std::vector<std::string> markup_tokens(
    const ToolFormat& format,
    const std::optional<ReasoningFormat>& reasoning);

// All formats, for tests and documents.
const std::vector<const ToolFormat*>& tool_formats();
// By name; not_found, naming what is known.
const ToolFormat& tool_format_named(std::string_view name);
// The one that the template teaches the model; JSON in tags if it says nothing.
const ToolFormat& find_tool_format(std::string_view template_source);

}  // namespace mlxx::text
