#include "mlxx/text/tool_formats/argument_grammar.h"
#include "mlxx/text/tool_formats/declared_format.h"
#include "mlxx/text/tool_formats/tagged_call.h"

#include <fmt/format.h>

// Calls whose parameters stand between tags.
namespace mlxx::text {
namespace {

std::function<Sections(SharedTools)> tagged(
    std::vector<std::string> openings,
    TagShape shape) {
  return [=](SharedTools tools) {
    return Sections{openings, {}, [=](std::string_view opening) {
                      return read_tagged_calls(shape, opening, tools.get());
                    }};
  };
}

std::function<std::string(LarkWriter&, const ConstrainedTool&)> tagged_call(
    std::string before,
    std::string behind_name,
    std::string close,
    TagLayout layout) {
  return [=](LarkWriter& lark, const ConstrainedTool& tool) {
    return fmt::format(
        "{} {} {}",
        lark.literal(before + tool.name + behind_name),
        tagged_arguments(lark, tool, layout),
        lark.literal(close));
  };
}

// <tool_call>f<arg_key>a</arg_key><arg_value>1</arg_value></tool_call>
DeclaredFormat key_value(std::string name, std::string prefix) {
  auto tag = [&](std::string_view what, bool closing = false) {
    return fmt::format("<{}{}{}>", closing ? "/" : "", prefix, what);
  };
  DeclaredFormat format;
  format.name = std::move(name);
  format.control_tokens = {
      tag("tool_call"),
      tag("tool_call", true),
      tag("arg_key"),
      tag("arg_key", true),
      tag("arg_value"),
      tag("arg_value", true)};
  TagShape shape{
      .open_parameter = tag("arg_key"),
      .parameter_end = tag("arg_key", true),
      .open_value = tag("arg_value"),
      .close_parameter = tag("arg_value", true),
      .close_call = tag("tool_call", true),
  };
  format.sections = tagged({tag("tool_call")}, shape);
  format.syntax = {
      tag("tool_call"),
      tag("tool_call", true),
      "\n",
      true,
      tagged_call(
          "",
          "\n",
          "",
          {tag("arg_key"),
           tag("arg_key", true) + "\n" + tag("arg_value"),
           tag("arg_value", true) + "\n"})};
  return format;
}

// <function=f>\n<parameter=a>\n1\n</parameter>\n</function>
DeclaredFormat functions(std::string name, std::string tag) {
  DeclaredFormat format;
  format.name = std::move(name);
  std::string opening = fmt::format("<{}>", tag);
  std::string close = fmt::format("</{}>", tag);
  format.control_tokens = {opening, close};
  TagShape shape{
      .open_call = "<function=",
      .name_end = ">",
      .open_parameter = "<parameter=",
      .parameter_end = ">",
      .close_parameter = "</parameter>",
      .close_call = "</function>",
      .close_section = close,
  };
  // Some answers lack the outer tag.
  format.sections = tagged({opening, "<function="}, shape);
  format.syntax = {
      opening + "\n",
      close,
      "\n",
      true,
      tagged_call(
          "<function=",
          ">\n",
          "</function>\n",
          {"<parameter=", ">\n", "\n</parameter>\n"})};
  return format;
}

// <invoke name="f">\n<parameter name="a">1</parameter>\n</invoke>
DeclaredFormat
invocations(std::string name, std::string prefix, std::string section) {
  DeclaredFormat format;
  format.name = std::move(name);
  std::string opening = fmt::format("<{}>", section);
  TagShape shape{
      .open_call = fmt::format("<{}invoke name=", prefix),
      .name_end = ">",
      .open_parameter = fmt::format("<{}parameter name=", prefix),
      .parameter_end = ">",
      .close_parameter = fmt::format("</{}parameter>", prefix),
      .close_call = fmt::format("</{}invoke>", prefix),
      .close_section = fmt::format("</{}>", section),
  };
  format.control_tokens = {opening, shape.close_section};
  format.sections = tagged({opening}, shape);
  format.syntax = {
      opening + "\n",
      shape.close_section,
      "",
      false,
      tagged_call(
          shape.open_call + "\"",
          "\">\n",
          shape.close_call + "\n",
          {shape.open_parameter + "\"", "\">", shape.close_parameter + "\n"})};
  return format;
}

}  // namespace

// GLM 4.5 to 4.7, Laguna.
DeclaredFormat glm47_format() {
  DeclaredFormat format = key_value("glm47", "");
  format.detect = [](std::string_view source) {
    return has(source, "<arg_key>");
  };
  return format;
}

DeclaredFormat longcat_format() {
  DeclaredFormat format = key_value("longcat", "longcat_");
  format.detect = [](std::string_view source) {
    return has(source, "<longcat_tool_call>");
  };
  return format;
}

// Qwen3-Coder, Qwen 3.5, Nemotron 3, StepFun.
DeclaredFormat qwen3_coder_format() {
  DeclaredFormat format = functions("qwen3_coder", "tool_call");
  format.detect = [](std::string_view source) {
    return has(source, "<function=") && has(source, "<tool_call>");
  };
  return format;
}

DeclaredFormat seed_oss_format() {
  DeclaredFormat format = functions("seed_oss", "seed:tool_call");
  format.detect = [](std::string_view source) {
    return has(source, "<function=") && has(source, "seed:tool_call");
  };
  return format;
}

DeclaredFormat minimax_m2_format() {
  DeclaredFormat format = invocations("minimax_m2", "", "minimax:tool_call");
  format.detect = [](std::string_view source) {
    return has(source, "<minimax:tool_call>");
  };
  return format;
}

namespace {

DeclaredFormat deepseek(std::string name, const std::string& section) {
  DeclaredFormat format =
      invocations(std::move(name), "｜DSML｜", "｜DSML｜" + section);
  format.syntax.call = tagged_call(
      "<｜DSML｜invoke name=\"",
      "\">\n",
      "</｜DSML｜invoke>\n",
      {"<｜DSML｜parameter name=\"",
       "\" string=\"true\">",
       "</｜DSML｜parameter>\n",
       "\" string=\"false\">"});
  return format;
}

}  // namespace

DeclaredFormat deepseek_v32_format() {
  DeclaredFormat format = deepseek("deepseek_v32", "function_calls");
  format.detect = [](std::string_view source) {
    return has(source, "｜DSML｜") && has(source, "function_calls");
  };
  return format;
}

DeclaredFormat deepseek_v4_format() {
  DeclaredFormat format = deepseek("deepseek_v4", "tool_calls");
  format.detect = [](std::string_view source) {
    return has(source, "｜DSML｜");
  };
  return format;
}

DeclaredFormat muse_format() {
  DeclaredFormat format = invocations("muse", "atem:", "atem:function_calls");
  format.detect = [](std::string_view source) {
    return has(source, "<atem:function_calls>");
  };
  return format;
}

// <function name="f"><param name="a">1</param></function>
DeclaredFormat minicpm5_format() {
  DeclaredFormat format;
  format.name = "minicpm5";
  format.detect = [](std::string_view source) {
    return has(source, "<function name=");
  };
  TagShape shape{
      .open_call = "<function name=",
      .name_end = ">",
      .open_parameter = "<param name=",
      .parameter_end = ">",
      .close_parameter = "</param>",
      .close_call = "</function>",
  };
  format.sections = tagged({"<function name="}, shape);
  format.syntax = {
      "<function name=\"",
      "</function>",
      "\n",
      true,
      tagged_call("", "\">", "", {"<param name=\"", "\">", "</param>"})};
  return format;
}

}  // namespace mlxx::text
