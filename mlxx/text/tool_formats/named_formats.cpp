#include "mlxx/text/tool_formats/argument_grammar.h"
#include "mlxx/text/tool_formats/declared_format.h"
#include "mlxx/text/tool_formats/named_call.h"

#include <fmt/format.h>

// Calls with named arguments in brackets.
namespace mlxx::text {
namespace {

std::function<Sections(SharedTools)> named(
    std::string opening,
    NamedShape shape) {
  return [=](SharedTools tools) {
    return Sections{{opening}, {}, [=](std::string_view marker) {
                      return read_named_calls(shape, marker, tools.get());
                    }};
  };
}

DeclaredFormat gemma(
    std::string name,
    std::string opening,
    std::string close,
    std::string quote) {
  DeclaredFormat format;
  format.name = std::move(name);
  format.control_tokens = {opening, close, quote};
  NamedShape shape;
  shape.prefix = "call:";
  shape.open = '{';
  shape.assign = ':';
  shape.close = '}';
  shape.quote = quote;
  shape.close_section = close;
  format.sections = named(opening, shape);
  format.syntax = {
      opening,
      close,
      "",
      true,
      [quote](LarkWriter& lark, const ConstrainedTool& tool) {
        return fmt::format(
            "{} {}",
            lark.literal("call:" + tool.name),
            bare_arguments(lark, tool, quote));
      }};
  return format;
}

}  // namespace

// <|tool_call>call:f{a:1,b:<|"|>x<|"|>}<tool_call|>
DeclaredFormat gemma4_format() {
  DeclaredFormat format =
      gemma("gemma4", "<|tool_call>", "<tool_call|>", "<|\"|>");
  format.detect = [](std::string_view source) {
    return has(source, "<|tool_call>") && has(source, "<tool_call|>");
  };
  return format;
}

DeclaredFormat function_gemma_format() {
  DeclaredFormat format = gemma(
      "function_gemma",
      "<start_function_call>",
      "<end_function_call>",
      "<escape>");
  format.detect = [](std::string_view source) {
    return has(source, "<start_function_call>");
  };
  return format;
}

// LFM2: <|tool_call_start|>[f(a=1), g(b="x")]<|tool_call_end|>
DeclaredFormat pythonic_format() {
  DeclaredFormat format;
  format.name = "pythonic";
  format.control_tokens = {"<|tool_call_start|>", "<|tool_call_end|>"};
  format.detect = [](std::string_view source) {
    return has(source, "<|tool_list_start|>") ||
        has(source, "<|tool_call_start|>");
  };
  NamedShape shape;
  shape.list = true;
  shape.close_section = "<|tool_call_end|>";
  format.sections = named("<|tool_call_start|>", shape);
  format.syntax = {
      "<|tool_call_start|>[",
      "]<|tool_call_end|>",
      ", ",
      false,
      [](LarkWriter& lark, const ConstrainedTool& tool) {
        return fmt::format(
            "{} {} {}",
            lark.literal(tool.name + "("),
            keyword_arguments(lark, tool),
            lark.literal(")"));
      }};
  return format;
}

}  // namespace mlxx::text
