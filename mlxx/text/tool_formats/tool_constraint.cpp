#include "mlxx/text/tool_formats/tool_constraint.h"

#include <algorithm>
#include <cctype>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "mlxx/base/error.h"
#include "mlxx/text/tool_formats/grammar_check.h"

namespace mlxx::text {
namespace {

// A model that is free to go on may repeat a call for ever.
constexpr int kMostCalls = 32;
constexpr size_t kLongestName = 256;

bool is_sound_name(std::string_view name) {
  return !name.empty() && name.size() <= kLongestName &&
      std::all_of(name.begin(), name.end(), [](char c) {
        return std::isalnum(static_cast<unsigned char>(c)) || c == '_' ||
            c == '-' || c == '.' || c == '/' || c == ':';
      });
}

// For tools without parameters, and for those that are not strict.
const OrderedJson& no_parameters() {
  static const OrderedJson schema = {
      {"type", "object"},
      {"properties", OrderedJson::object()},
      {"additionalProperties", false}};
  return schema;
}

}  // namespace

std::optional<std::vector<ConstrainedTool>> constrained_tools(
    const ToolUse& use) {
  if (use.choice == ToolChoice::none || use.tools == nullptr ||
      !use.tools->is_array() || use.tools->empty()) {
    if (use.choice == ToolChoice::required || use.choice == ToolChoice::named) {
      fail(
          ErrorKind::invalid_request,
          "tools",
          "a tool call is demanded, but there are no tools");
    }
    return std::nullopt;
  }
  bool any_strict = false;
  std::vector<ConstrainedTool> tools;
  std::set<std::string> names;
  for (const OrderedJson& entry : *use.tools) {
    bool wrapped = entry.is_object() && entry.contains("function");
    const OrderedJson& function = wrapped ? entry["function"] : entry;
    if (!function.is_object() || !function.contains("name") ||
        !function["name"].is_string()) {
      fail(
          ErrorKind::invalid_request,
          "tools",
          "a tool has no function with a name");
    }
    ConstrainedTool tool;
    tool.name = function["name"].get<std::string>();
    if (!is_sound_name(tool.name)) {
      fail(
          ErrorKind::invalid_request,
          "tools",
          "a function can't be named {}",
          json_quote(tool.name));
    }
    if (!names.insert(tool.name).second) {
      fail(
          ErrorKind::invalid_request,
          "tools",
          "two functions are named {}",
          tool.name);
    }
    bool strict = function.contains("strict") &&
        function["strict"].is_boolean() && function["strict"].get<bool>();
    any_strict |= strict;
    tool.parameters = &no_parameters();
    if (function.contains("parameters") && !function["parameters"].is_null()) {
      tool.parameters = &function["parameters"];
    }
    if (!tool.parameters->is_object()) {
      fail(
          ErrorKind::invalid_request,
          "tools",
          "the parameters of {} are no schema but {}",
          tool.name,
          tool.parameters->type_name());
    }
    if (tool.parameters->empty()) {
      tool.parameters = &no_parameters();
    }
    tool.any = use.choice == ToolChoice::automatic && !strict;
    if (use.choice != ToolChoice::named || tool.name == use.named) {
      tools.push_back(tool);
    }
  }
  if (use.choice == ToolChoice::named && tools.empty()) {
    fail(
        ErrorKind::invalid_request,
        "tool_choice",
        "no tool is named {}; there are: {}",
        json_quote(use.named),
        fmt::join(names, ", "));
  }
  if (use.choice == ToolChoice::automatic && !any_strict && use.parallel) {
    return std::nullopt;
  }
  return tools;
}

std::string one_of_the_tools(
    LarkWriter& lark,
    const std::vector<ConstrainedTool>& tools,
    const std::function<std::string(LarkWriter&, const ConstrainedTool&)>&
        call) {
  std::vector<std::string> rules;
  for (const ConstrainedTool& tool : tools) {
    // With markers as ordinary text the same, and the vocabulary plays no
    // part in what can be enforced.
    LarkWriter alone(nullptr);
    std::string own = call(alone, tool);
    alone.rule("start", own);
    check_grammar(
        GrammarKind::lark,
        alone.grammar(),
        fmt::format("parameters of tool {}", tool.name));
    std::string rule = lark.fresh("call");
    lark.rule(rule, call(lark, tool));
    rules.push_back(rule);
  }
  std::string any = lark.fresh("calls");
  lark.rule(any, fmt::format("{}", fmt::join(rules, " | ")));
  return any;
}

std::optional<std::string> constrain_calls(
    const CallSyntax& syntax,
    const std::vector<std::string>& openings,
    const ToolUse& use) {
  std::optional<std::vector<ConstrainedTool>> tools = constrained_tools(use);
  if (!tools) {
    return std::nullopt;
  }
  LarkWriter lark(use.tokenizer);
  std::string call = one_of_the_tools(lark, *tools, syntax.call);
  // The part of the opening by which a parser knows a call.
  std::string trigger;
  for (const std::string& one : openings) {
    if (std::string_view(syntax.opening).starts_with(one)) {
      trigger = one;
    }
  }
  std::string_view behind =
      std::string_view(syntax.opening).substr(trigger.size());
  std::string more =
      use.parallel ? fmt::format("{{0,{}}}", kMostCalls - 1) : "{0}";
  // Everything behind the trigger.
  std::string rest;
  std::string separator = lark.literal(syntax.separator);
  if (syntax.section_each) {
    rest = fmt::format(
        "{} {} {}",
        lark.literal(behind),
        call,
        lark.literal(syntax.closing));
    if (use.parallel) {
      rest += fmt::format(
          " ({} {} {} {}){}",
          separator,
          lark.literal(syntax.opening),
          call,
          lark.literal(syntax.closing),
          more);
    }
  } else {
    rest = fmt::format("{} {}", lark.literal(behind), call);
    if (use.parallel) {
      rest += fmt::format(" ({} {}){}", separator, call, more);
    }
    rest += fmt::format(" {}", lark.literal(syntax.closing));
  }
  std::string calls = lark.fresh("answer");
  lark.rule(calls, rest);
  // Models end their reasoning with an empty line.
  std::string gap = lark.fresh("GAP");
  lark.rule(gap, "/\\n{1,2}/");
  std::string demanded =
      fmt::format("{}? {} {}", gap, lark.literal(trigger), calls);
  if (use.choice != ToolChoice::automatic) {
    lark.rule("start", demanded);
    return lark.grammar();
  }
  std::string text = lark.fresh("TEXT");
  if (trigger.empty()) {
    // Text of the first byte is told from a call.
    lark.rule(text, "/([^{ \\n\\t\\r](?s:.*))?/");
    lark.rule("start", fmt::format("{} | {}", text, demanded));
    return lark.grammar();
  }
  // Other ways into a call are closed.
  std::string free = "/(?s:.*)/";
  for (const std::string& one : openings) {
    if (one != trigger && !lark.has_control_token(one)) {
      std::string other = lark.fresh("OTHER");
      lark.rule(other, fmt::format("/(?s:.*)/ {} /(?s:.*)/", lark_quote(one)));
      free += fmt::format(" & ~{}", other);
    }
  }
  lark.rule(text, free);
  if (lark.has_control_token(trigger)) {
    lark.rule(
        "start",
        fmt::format("{} ({} {})?", text, lark.literal(trigger), calls));
  } else {
    lark.rule(
        "start",
        fmt::format("{} | {} {}", text, lark.any_up_to(trigger), calls));
  }
  return lark.grammar();
}

}  // namespace mlxx::text
