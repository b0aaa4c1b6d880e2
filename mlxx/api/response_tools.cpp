#include "mlxx/api/response_tools.h"

#include <nlohmann/json.hpp>

#include "mlxx/api/offered_tools.h"

namespace mlxx::api {

namespace {

using text::ToolChoice;

// Tools that a server would run have types of their own.
void check_type(const OrderedJson& tool, const std::string& path) {
  if (!tool.is_object()) {
    return;  // the reader says so
  }
  std::string field = path + ".type";
  auto type = tool.find("type");
  if (type == tool.end() || !type->is_string()) {
    throw RequestError(
        400,
        fmt::format("[{}] is required", field),
        field,
        "invalid_type");
  }
  if (*type != "function") {
    throw RequestError(
        400,
        fmt::format(
            "[{}] \"{}\" is not supported: only functions are",
            field,
            printable_name(type->get_ref<const std::string&>())),
        field,
        "unsupported_value");
  }
}

void check_call(const FieldReader& tool) {
  check_direct_call(tool, "programs");
  if (tool.boolean("async").value_or(false)) {
    tool.refuse(
        "async",
        "must be false: the answer waits for its tools",
        "unsupported_value");
  }
}

OrderedJson echo_of(const OrderedJson& tool) {
  const OrderedJson& function = tool["function"];
  auto value = [&](const char* key) {
    return function.contains(key) ? function[key] : OrderedJson();
  };
  return {
      {"type", "function"},
      {"name", value("name")},
      {"description", value("description")},
      {"parameters", value("parameters")},
      {"strict", value("strict")}};
}

void allow_some(const FieldReader& choice, ChatTools& out) {
  auto mode = choice.word("mode", {"auto", "required"});
  if (!mode) {
    choice.missing("mode");
  }
  std::vector<std::string> names;
  const OrderedJson* tools = choice.list("tools", 1024);
  if (!tools) {
    choice.missing("tools");
  }
  for (const OrderedJson& tool : *tools) {
    const bool named = tool.is_object() && tool.contains("name") &&
        tool["name"].is_string() && tool.contains("type") &&
        tool["type"] == "function";
    names.push_back(named ? tool["name"].get<std::string>() : "");
  }
  if (!allow_tools(out, names)) {
    choice.refuse("tools", "must be some of the tools", "invalid_value");
  }
  if (*mode == "required") {
    out.choice = ToolChoice::required;
  }
}

void read_choice(const FieldReader& fields, ChatTools& out) {
  const OrderedJson* given = fields.find("tool_choice");
  if (!given) {
    return;
  }
  if (given->is_object()) {
    auto choice = *fields.object("tool_choice");
    auto type = choice.word("type", {"function", "allowed_tools"});
    if (!type) {
      choice.missing("type");
    }
    auto name = choice.string("name", 1024);
    if (*type == "allowed_tools") {
      allow_some(choice, out);
    } else if (!name || !name_tool(out, *name)) {
      choice.refuse("name", "is none of the tools", "invalid_value");
    }
    return;
  }
  auto word = fields.word("tool_choice", {"none", "auto", "required"});
  if (*word == "none") {
    forbid_tools(out);
  } else if (*word == "required") {
    if (!out.listed) {
      fields.refuse(
          "tool_choice",
          "asks for a call, but there are no tools",
          "invalid_value");
    }
    out.choice = ToolChoice::required;
  }
}

}  // namespace

ChatTools read_response_tools(
    const FieldReader& fields,
    const Limits& limits,
    OrderedJson& echo) {
  const auto max_tools = static_cast<size_t>(limits.max_tools);
  if (const OrderedJson* tools = fields.list("tools", max_tools)) {
    for (size_t i = 0; i < tools->size(); ++i) {
      check_type((*tools)[i], fmt::format("tools[{}]", i));
    }
  }
  OrderedJson listed = OrderedJson::array();
  OrderedJson echoed = OrderedJson::array();
  for (const FieldReader& tool : fields.objects("tools", max_tools)) {
    check_call(tool);
    listed.push_back(function_tool(
        tool,
        tool.required_string("name", 1024),
        tool.string("description").value_or(""),
        tool.find("parameters"),
        "parameters",
        limits));
    echoed.push_back(echo_of(listed.back()));
  }
  ChatTools out = offer_tools(fields, std::move(listed));
  read_choice(fields, out);
  out.parallel = fields.boolean("parallel_tool_calls").value_or(true);
  const OrderedJson* choice = fields.find("tool_choice");
  echo["tools"] = std::move(echoed);
  echo["tool_choice"] = choice ? *choice : OrderedJson("auto");
  echo["parallel_tool_calls"] = out.parallel;
  return out;
}

}  // namespace mlxx::api
