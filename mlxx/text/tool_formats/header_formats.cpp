#include "mlxx/text/tool_formats/argument_grammar.h"
#include "mlxx/text/tool_formats/declared_format.h"
#include "mlxx/text/tool_formats/header_call.h"

#include <fmt/format.h>

// Calls as a name and JSON arguments behind it.
namespace mlxx::text {
namespace {

std::function<Sections(SharedTools)> headers(
    std::vector<std::string> openings,
    HeaderShape shape) {
  return [=](SharedTools) {
    return Sections{openings, {}, [shape](std::string_view opening) {
                      return read_header_calls(shape, opening);
                    }};
  };
}

std::function<std::string(LarkWriter&, const ConstrainedTool&)>
header_call(std::string before, std::string behind_name, std::string close) {
  return [=](LarkWriter& lark, const ConstrainedTool& tool) {
    return fmt::format(
        "{} {} {}",
        lark.literal(before + tool.name + behind_name),
        json_arguments(lark, tool),
        lark.literal(close));
  };
}

}  // namespace

// [TOOL_CALLS]f[ARGS]{...} and the older [TOOL_CALLS][{"name": ...}]
DeclaredFormat mistral_format() {
  DeclaredFormat format;
  format.name = "mistral";
  format.control_tokens = {"[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"};
  format.detect = [](std::string_view source) {
    return has(source, "[TOOL_CALLS]");
  };
  HeaderShape shape;
  shape.name_end = "[ARGS]";
  shape.id_begin = "[CALL_ID]";
  shape.json_list = true;
  format.sections = headers({"[TOOL_CALLS]"}, shape);
  format.syntax = {"[TOOL_CALLS]", "", "", true, header_call("", "[ARGS]", "")};
  return format;
}

// Kimi K2.
DeclaredFormat kimi_k2_format() {
  DeclaredFormat format;
  format.name = "kimi_k2";
  format.control_tokens = {
      "<|tool_calls_section_begin|>",
      "<|tool_calls_section_end|>",
      "<|tool_call_begin|>",
      "<|tool_call_argument_begin|>",
      "<|tool_call_end|>"};
  format.detect = [](std::string_view source) {
    return has(source, "<|tool_calls_section_begin|>");
  };
  HeaderShape shape;
  shape.open_call = "<|tool_call_begin|>";
  shape.name_end = "<|tool_call_argument_begin|>";
  shape.close_call = "<|tool_call_end|>";
  shape.close_section = "<|tool_calls_section_end|>";
  shape.numbered = true;
  format.sections =
      headers({"<|tool_calls_section_begin|>", "<|tool_call_begin|>"}, shape);
  format.syntax = {
      "<|tool_calls_section_begin|>",
      "<|tool_calls_section_end|>",
      "",
      false,
      [](LarkWriter& lark, const ConstrainedTool& tool) {
        std::string number = lark.fresh("NUMBER");
        lark.rule(number, "/[0-9]{1,3}/");
        return fmt::format(
            "{} {} {} {} {}",
            lark.literal("<|tool_call_begin|>functions." + tool.name + ":"),
            number,
            lark.literal("<|tool_call_argument_begin|>"),
            json_arguments(lark, tool),
            lark.literal("<|tool_call_end|>"));
      }};
  return format;
}

// DeepSeek V3.1.
DeclaredFormat deepseek_v3_format() {
  DeclaredFormat format;
  format.name = "deepseek_v3";
  format.control_tokens = {
      "<｜tool▁calls▁begin｜>",
      "<｜tool▁calls▁end｜>",
      "<｜tool▁call▁begin｜>",
      "<｜tool▁sep｜>",
      "<｜tool▁call▁end｜>"};
  format.detect = [](std::string_view source) {
    return has(source, "<｜tool▁call▁begin｜>");
  };
  HeaderShape shape;
  shape.open_call = "<｜tool▁call▁begin｜>";
  shape.name_end = "<｜tool▁sep｜>";
  shape.close_call = "<｜tool▁call▁end｜>";
  shape.close_section = "<｜tool▁calls▁end｜>";
  format.sections =
      headers({"<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>"}, shape);
  format.syntax = {
      "<｜tool▁calls▁begin｜>",
      "<｜tool▁calls▁end｜>",
      "",
      false,
      header_call(
          "<｜tool▁call▁begin｜>",
          "<｜tool▁sep｜>",
          "<｜tool▁call▁end｜>")};
  return format;
}

}  // namespace mlxx::text
