#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "mlxx/text/tool_format.h"
#include "mlxx/text/tool_formats/lark_writer.h"
#include "mlxx/text/tool_formats/section_reader.h"

namespace mlxx::text {

using SharedTools = std::shared_ptr<const OrderedJson>;

// One tool, as a constraint sees it.
struct ConstrainedTool {
  std::string name;
  const OrderedJson* parameters = nullptr;  // an object; never null
  bool any = false;  // its arguments are not held to the schema
};

// How calls are written by a model that is held to a grammar: one section
// with all calls, or a section for each.
struct CallSyntax {
  std::string opening;       // "<tool_call>\n"
  std::string closing;       // "\n</tool_call>"
  std::string separator;     // between calls of a section, or between sections
  bool section_each = true;  // a section for each call
  // The body of a Lark rule for one call.
  std::function<std::string(LarkWriter&, const ConstrainedTool&)> call;
};

// A format of sections behind markers, the rest being the same for all.
struct DeclaredFormat {
  std::string name;
  std::vector<std::string> control_tokens;
  bool (*detect)(std::string_view template_source) = nullptr;
  std::function<Sections(SharedTools)> sections;
  CallSyntax syntax;
};

class MarkedToolFormat : public ToolFormat {
 public:
  explicit MarkedToolFormat(DeclaredFormat declared)
      : declared_(std::move(declared)) {}
  std::string_view name() const override {
    return declared_.name;
  }
  std::vector<std::string> visible_tokens() const override {
    return declared_.control_tokens;
  }
  std::unique_ptr<AnswerParser> make_parser(
      const std::optional<ReasoningFormat>& reasoning,
      bool reasoning_open,
      const OrderedJson& tools) const override;
  std::optional<std::string> constraint(const ToolUse& use) const override;

 private:
  DeclaredFormat declared_;
};

// One of each family.
DeclaredFormat json_tags_format();
DeclaredFormat json_list_tags_format();
DeclaredFormat nemotron_format();
DeclaredFormat cohere_format();
DeclaredFormat granite_format();
DeclaredFormat llama3_json_format();
DeclaredFormat mistral_format();
DeclaredFormat kimi_k2_format();
DeclaredFormat deepseek_v3_format();
DeclaredFormat glm47_format();
DeclaredFormat longcat_format();
DeclaredFormat qwen3_coder_format();
DeclaredFormat seed_oss_format();
DeclaredFormat minimax_m2_format();
DeclaredFormat deepseek_v32_format();
DeclaredFormat deepseek_v4_format();
DeclaredFormat muse_format();
DeclaredFormat minicpm5_format();
DeclaredFormat gemma4_format();
DeclaredFormat function_gemma_format();
DeclaredFormat pythonic_format();

// gpt-oss: everything is in channels, so it has a parser of its own.
std::unique_ptr<ToolFormat> make_harmony_format();
bool teaches_harmony(std::string_view template_source);

inline bool has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

}  // namespace mlxx::text
