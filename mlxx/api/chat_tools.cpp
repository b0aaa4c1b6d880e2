#include "mlxx/api/chat_tools.h"

#include <algorithm>
#include <set>

#include <nlohmann/json.hpp>

#include "mlxx/api/json_writer.h"

namespace mlxx::api {

namespace {

using text::ToolChoice;

// ChatTools while they are read.
struct ReadTools {
  OrderedJson listed = OrderedJson::array();
  OrderedJson callable = OrderedJson::array();
  ToolChoice choice = ToolChoice::none;
  std::string named;
};

OrderedJson read_tool(const FieldReader& tool, const Limits& limits) {
  tool.word("type", {"function"});
  const auto function = tool.object("function");
  if (!function) {
    tool.missing("function");
  }
  const std::string name = function->required_string("name", 128);
  if (!is_function_name(name)) {
    function->refuse(
        "name",
        "must be 1 to 128 letters, digits or any of _ - . / :",
        "invalid_value");
  }
  OrderedJson out = {{"name", name}};
  if (const auto description = function->string("description")) {
    out["description"] = *description;
  }
  if (const OrderedJson* parameters = function->find("parameters")) {
    if (!parameters->is_object()) {
      function->refuse(
          "parameters",
          type_problem("an object", *parameters),
          "invalid_type");
    }
    const size_t bytes = write_json(*parameters).size();
    if (bytes > static_cast<size_t>(limits.max_schema_bytes)) {
      function->refuse(
          "parameters",
          fmt::format(
              "has {} bytes, {} are allowed",
              bytes,
              limits.max_schema_bytes),
          "string_above_max_length");
    }
    out["parameters"] = *parameters;
  }
  if (const auto strict = function->boolean("strict")) {
    out["strict"] = *strict;
  }
  return {{"type", "function"}, {"function", std::move(out)}};
}

const std::string& name_of(const OrderedJson& tool) {
  return tool["function"]["name"].get_ref<const std::string&>();
}

const OrderedJson* find_tool(const OrderedJson& tools, std::string_view name) {
  for (const OrderedJson& tool : tools) {
    if (name_of(tool) == name) {
      return &tool;
    }
  }
  return nullptr;
}

void name_one(
    const FieldReader& choice,
    const std::string& name,
    ReadTools& out) {
  const OrderedJson* tool = find_tool(out.listed, name);
  if (!tool) {
    choice.refuse("name", "is none of the tools", "invalid_value");
  }
  out.choice = ToolChoice::named;
  out.named = name;
  out.callable = OrderedJson::array({*tool});
}

// {"mode": "auto", "tools": [{"type": "function", "function": {"name"}}]}
void allow_some(const FieldReader& allowed, ReadTools& out) {
  const auto mode = allowed.word("mode", {"auto", "required"});
  if (!mode) {
    allowed.missing("mode");
  }
  const OrderedJson* tools = allowed.list("tools", out.listed.size());
  if (!tools || tools->empty()) {
    allowed.refuse("tools", "must name at least one tool", "invalid_value");
  }
  out.callable = OrderedJson::array();
  for (const OrderedJson& entry : *tools) {
    const OrderedJson* tool = nullptr;
    if (entry.is_object()) {
      const OrderedJson function = entry.value("function", entry);
      if (function.is_object() && function.contains("name") &&
          function["name"].is_string()) {
        tool = find_tool(
            out.listed,
            function["name"].get_ref<const std::string&>());
      }
    }
    if (!tool) {
      allowed.refuse("tools", "must be some of the tools", "invalid_value");
    }
    if (!find_tool(out.callable, name_of(*tool))) {
      out.callable.push_back(*tool);
    }
  }
  out.choice = *mode == "auto" ? ToolChoice::automatic : ToolChoice::required;
}

void read_choice_object(const FieldReader& choice, ReadTools& out) {
  const auto type = choice.word("type", {"function", "allowed_tools"});
  const auto function = choice.object("function");
  const auto allowed = choice.object("allowed_tools");
  if (!type) {
    choice.missing("type");
  }
  if (*type == "function") {
    if (!function) {
      choice.missing("function");
    }
    name_one(*function, function->required_string("name", 128), out);
  } else {
    if (!allowed) {
      choice.missing("allowed_tools");
    }
    allow_some(*allowed, out);
  }
}

void read_choice(const FieldReader& fields, ReadTools& out) {
  const OrderedJson* given = fields.find("tool_choice");
  if (!given) {
    return;
  }
  if (!given->is_string() && !given->is_object()) {
    fields.refuse(
        "tool_choice",
        type_problem("a string or an object", *given),
        "invalid_type");
  }
  if (given->is_object()) {
    read_choice_object(*fields.object("tool_choice"), out);
    return;
  }
  const auto word = fields.word("tool_choice", {"none", "auto", "required"});
  if (*word == "none") {
    out.choice = ToolChoice::none;
  } else if (*word == "required") {
    if (out.listed.empty()) {
      fields.refuse(
          "tool_choice",
          "asks for a call, but there are no tools",
          "invalid_value");
    }
    out.choice = ToolChoice::required;
  }
}

}  // namespace

bool is_function_name(std::string_view name) {
  return !name.empty() && name.size() <= 128 &&
      std::all_of(name.begin(), name.end(), [](char letter) {
        return (letter >= 'a' && letter <= 'z') ||
            (letter >= 'A' && letter <= 'Z') ||
            (letter >= '0' && letter <= '9') ||
            std::string_view("_-./:").find(letter) != std::string_view::npos;
      });
}

ChatTools read_chat_tools(const FieldReader& fields, const Limits& limits) {
  ReadTools read;
  std::set<std::string> names;
  for (const FieldReader& tool :
       fields.objects("tools", static_cast<size_t>(limits.max_tools))) {
    OrderedJson one = read_tool(tool, limits);
    if (!names.insert(name_of(one)).second) {
      tool.refuse("function", "has the name of another tool", "invalid_value");
    }
    read.listed.push_back(std::move(one));
  }
  read.callable = read.listed;
  if (!read.listed.empty()) {
    read.choice = ToolChoice::automatic;
  }
  read_choice(fields, read);
  ChatTools out;
  out.parallel = fields.boolean("parallel_tool_calls").value_or(true);
  out.choice = read.choice;
  out.named = std::move(read.named);
  // With none, a model that is shown tools may write calls that nobody reads.
  if (out.choice != ToolChoice::none) {
    out.listed = std::make_shared<OrderedJson>(std::move(read.listed));
    out.callable = std::make_shared<OrderedJson>(std::move(read.callable));
  }
  return out;
}

}  // namespace mlxx::api
