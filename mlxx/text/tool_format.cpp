#include "mlxx/text/tool_format.h"

#include <array>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "mlxx/base/error.h"
#include "mlxx/text/tool_formats/declared_format.h"

namespace mlxx::text {
namespace {

struct Registered {
  std::unique_ptr<ToolFormat> format;
  bool (*detect)(std::string_view template_source);
};

// In the order in which they are looked for: those whose marks are theirs
// alone before those that share some, JSON in tags last.
const std::vector<Registered>& registered() {
  static const std::vector<Registered> all = [] {
    std::vector<Registered> list;
    list.push_back({make_harmony_format(), teaches_harmony});
    for (DeclaredFormat (*make)() : {
             kimi_k2_format,        deepseek_v32_format,   deepseek_v4_format,
             deepseek_v3_format,    minimax_m2_format,     muse_format,
             gemma4_format,         function_gemma_format, longcat_format,
             glm47_format,          pythonic_format,       minicpm5_format,
             seed_oss_format,       qwen3_coder_format,    mistral_format,
             cohere_format,         granite_format,        nemotron_format,
             json_list_tags_format, json_tags_format,      llama3_json_format,
         }) {
      DeclaredFormat format = make();
      auto detect = format.detect;
      list.push_back(
          {std::make_unique<MarkedToolFormat>(std::move(format)), detect});
    }
    return list;
  }();
  return all;
}

}  // namespace

std::optional<ReasoningFormat> find_reasoning_format(
    std::string_view template_source) {
  if (teaches_harmony(template_source)) {
    return ReasoningFormat{
        "harmony",
        "<|channel|>analysis<|message|>",
        "<|end|>",
        true};
  }
  struct Known {
    const char* name;
    const char* begin;
    const char* end;
    bool anywhere;
  };
  constexpr std::array<Known, 8> kKnown{{
      {"gemma", "<|channel>thought", "<channel|>", true},
      {"cohere", "<|START_THINKING|>", "<|END_THINKING|>", true},
      {"mistral", "[THINK]", "[/THINK]", true},
      {"seed", "<seed:think>", "</seed:think>", false},
      {"longcat", "<longcat_think>", "</longcat_think>", false},
      {"minimax", "<mm:think>", "</mm:think>", false},
      {"apertus", "<|inner_prefix|>", "<|inner_suffix|>", true},
      {"think", "<think>", "</think>", false},
  }};
  for (const Known& known : kKnown) {
    // Either marker tells: some templates only cut old reasoning off.
    if (has(template_source, known.begin) || has(template_source, known.end)) {
      return ReasoningFormat{
          known.name,
          known.begin,
          known.end,
          known.anywhere};
    }
  }
  return std::nullopt;
}

std::vector<std::string> markup_tokens(
    const ToolFormat& format,
    const std::optional<ReasoningFormat>& reasoning) {
  std::vector<std::string> tokens = format.visible_tokens();
  if (reasoning && reasoning->name != "harmony") {
    tokens.push_back(reasoning->begin);
    tokens.push_back(reasoning->end);
    if (reasoning->name == "gemma") {
      tokens.push_back("<|channel>");  // "thought" is ordinary text
    }
  }
  return tokens;
}

const std::vector<const ToolFormat*>& tool_formats() {
  static const std::vector<const ToolFormat*> all = [] {
    std::vector<const ToolFormat*> list;
    for (const Registered& one : registered()) {
      list.push_back(one.format.get());
    }
    return list;
  }();
  return all;
}

const ToolFormat& tool_format_named(std::string_view name) {
  std::vector<std::string_view> names;
  for (const ToolFormat* format : tool_formats()) {
    if (format->name() == name) {
      return *format;
    }
    names.push_back(format->name());
  }
  fail(
      ErrorKind::not_found,
      "tool format",
      "there is no tool format {}; known are: {}",
      name,
      fmt::join(names, ", "));
}

const ToolFormat& find_tool_format(std::string_view template_source) {
  for (const Registered& one : registered()) {
    if (one.detect(template_source)) {
      return *one.format;
    }
  }
  return tool_format_named("json_tags");
}

}  // namespace mlxx::text
