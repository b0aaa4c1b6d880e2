#include "mlxx/text/tool_formats/argument_grammar.h"
#include "mlxx/text/tool_formats/declared_format.h"
#include "mlxx/text/tool_formats/json_call.h"
#include "mlxx/text/tool_formats/named_call.h"

#include <fmt/format.h>

// Calls as JSON objects of a name and arguments.
namespace mlxx::text {
namespace {

// {"name": "f", "arguments": {...}}
std::function<std::string(LarkWriter&, const ConstrainedTool&)> json_object(
    std::string name_key,
    std::string arguments_key) {
  return [=](LarkWriter& lark, const ConstrainedTool& tool) {
    return fmt::format(
        "{} {} {}",
        lark.literal(fmt::format(
            "{{\"{}\": {}, \"{}\": ",
            name_key,
            json_quote(tool.name),
            arguments_key)),
        json_arguments(lark, tool),
        lark.literal("}"));
  };
}

std::function<Sections(SharedTools)> between(
    std::string opening,
    std::string close) {
  return [=](SharedTools) {
    return Sections{{opening}, {}, [close](std::string_view marker) {
                      JsonCallShape shape;
                      shape.opening = marker;
                      shape.close = close;
                      return read_json_calls(shape);
                    }};
  };
}

// What follows <|python_tag|>: JSON, or the f.call(a="x") of built-in tools.
class PythonTag : public SectionReader {
 public:
  explicit PythonTag(SharedTools tools) : tools_(std::move(tools)) {}
  Reading read(
      std::string_view text,
      bool last,
      size_t& used,
      CallWriter& calls) override {
    if (!inner_) {
      size_t first = text.find_first_not_of(" \n");
      if (first == std::string_view::npos) {
        return Reading::more;
      }
      if (text[first] == '{' || text[first] == '[') {
        JsonCallShape shape{.separators = ";"};
        inner_ = read_json_calls(shape);
      } else {
        NamedShape shape;
        shape.method = ".call";
        inner_ = read_named_calls(shape, "<|python_tag|>", tools_.get());
      }
    }
    return inner_->read(text, last, used, calls);
  }

 private:
  SharedTools tools_;
  std::unique_ptr<SectionReader> inner_;
};

}  // namespace

// Hermes, Qwen 2.5 and 3, Granite 4: <tool_call>{...}</tool_call>
DeclaredFormat json_tags_format() {
  DeclaredFormat format;
  format.name = "json_tags";
  format.control_tokens = {"<tool_call>", "</tool_call>"};
  format.detect = [](std::string_view source) {
    return has(source, "<tool_call>");
  };
  format.sections = between("<tool_call>", "</tool_call>");
  format.syntax = {
      "<tool_call>\n",
      "\n</tool_call>",
      "\n",
      true,
      json_object("name", "arguments")};
  return format;
}

namespace {

// A list of all calls between tags.
DeclaredFormat json_list(std::string name, const std::string& tag) {
  DeclaredFormat format;
  format.name = std::move(name);
  std::string opening = fmt::format("<{}>", tag);
  std::string close = fmt::format("</{}>", tag);
  format.control_tokens = {opening, close};
  format.sections = between(opening, close);
  format.syntax = {
      opening + "[",
      fmt::format("]{}", close),
      ", ",
      false,
      json_object("name", "arguments")};
  return format;
}

}  // namespace

// MiniMax-M1, Apriel.
DeclaredFormat json_list_tags_format() {
  DeclaredFormat format = json_list("json_list_tags", "tool_calls");
  format.detect = [](std::string_view source) {
    return has(source, "<tool_calls>");
  };
  return format;
}

// Nemotron Nano v2.
DeclaredFormat nemotron_format() {
  DeclaredFormat format = json_list("nemotron", "TOOLCALL");
  format.detect = [](std::string_view source) {
    return has(source, "<TOOLCALL>");
  };
  return format;
}

// Granite 3: <|tool_call|>[{...}]
DeclaredFormat granite_format() {
  DeclaredFormat format;
  format.name = "granite";
  format.control_tokens = {"<|tool_call|>"};
  format.detect = [](std::string_view source) {
    return has(source, "<|tool_call|>");
  };
  format.sections = between("<|tool_call|>", "");
  format.syntax =
      {"<|tool_call|>[", "]", ", ", false, json_object("name", "arguments")};
  return format;
}

// Command R7B and A: <|START_ACTION|>[{"tool_name": ...}]<|END_ACTION|>
DeclaredFormat cohere_format() {
  DeclaredFormat format;
  format.name = "cohere";
  format.control_tokens = {"<|START_ACTION|>", "<|END_ACTION|>"};
  format.detect = [](std::string_view source) {
    return has(source, "<|START_ACTION|>");
  };
  format.sections = between("<|START_ACTION|>", "<|END_ACTION|>");
  format.syntax = {
      "<|START_ACTION|>[\n    ",
      "\n]<|END_ACTION|>",
      ",\n    ",
      false,
      json_object("tool_name", "parameters")};
  return format;
}

// Llama 3: the answer is {"name": "f", "parameters": {...}}, or that behind
// <|python_tag|>; several with ";" between.
DeclaredFormat llama3_json_format() {
  DeclaredFormat format;
  format.name = "llama3_json";
  format.control_tokens = {"<|python_tag|>"};
  format.detect = [](std::string_view source) {
    return has(source, "<|python_tag|>") ||
        (has(source, "<|start_header_id|>") && has(source, "\"parameters\": "));
  };
  format.sections = [](SharedTools tools) {
    return Sections{
        {"<|python_tag|>"},
        {"{"},
        [tools](std::string_view marker) -> std::unique_ptr<SectionReader> {
          if (marker != "{") {
            return std::make_unique<PythonTag>(tools);
          }
          JsonCallShape shape{
              .separators = ";",
              .bare = true,
              .tools = tools.get(),
              .before = "{"};
          return read_json_calls(shape);
        }};
  };
  format.syntax = {"", "", "; ", false, json_object("name", "parameters")};
  return format;
}

}  // namespace mlxx::text
