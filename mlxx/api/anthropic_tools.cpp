#include <nlohmann/json.hpp>

#include "mlxx/api/anthropic_messages.h"
#include "mlxx/api/json_writer.h"
#include "mlxx/api/offered_tools.h"

namespace mlxx::api {

namespace {

// Tools that a server would run have types of their own.
void check_type(const OrderedJson& tool, const std::string& path) {
  if (!tool.is_object()) {
    return;  // the reader says so
  }
  auto type = tool.find("type");
  if (type == tool.end() || type->is_null() || *type == "custom") {
    return;
  }
  std::string field = path + ".type";
  throw RequestError(
      400,
      fmt::format(
          "[{}] {} is not supported: only tools that the client runs are, of "
          "type \"custom\"",
          field,
          type->is_string()
              ? printable_name(type->get_ref<const std::string&>())
              : "what is no string"),
      field,
      "unsupported_value");
}

OrderedJson read_tool(const FieldReader& tool, const Limits& limits) {
  check_direct_call(tool, "code");
  std::string name = tool.required_string("name", 1024);
  const OrderedJson* schema = tool.find("input_schema");
  if (!schema) {
    tool.missing("input_schema");
  }
  std::string description = tool.string("description").value_or("");
  if (const OrderedJson* examples = tool.list("input_examples", 64)) {
    for (const OrderedJson& example : *examples) {
      if (!example.is_object()) {
        tool.refuse(
            "input_examples",
            type_problem("a list of objects", example),
            "invalid_type");
      }
      description += "\nExample: " + write_json(example);
    }
  }
  return function_tool(tool, name, description, schema, "input_schema", limits);
}

void read_choice(const FieldReader& choice, ChatTools& out) {
  auto type = choice.word("type", {"auto", "any", "tool", "none"});
  if (!type) {
    choice.missing("type");
  }
  out.parallel = !choice.boolean("disable_parallel_tool_use").value_or(false);
  auto name = choice.string("name", 1024);
  if (*type == "none") {
    forbid_tools(out);
    return;
  }
  if (*type != "auto" && !out.listed) {
    choice.refuse(
        "type",
        "asks for a call, but there are no tools",
        "invalid_value");
  }
  if (*type == "any") {
    out.choice = text::ToolChoice::required;
  } else if (*type == "tool") {
    if (!name) {
      choice.missing("name");
    }
    if (!name_tool(out, *name)) {
      choice.refuse("name", "is none of the tools", "invalid_value");
    }
  }
}

}  // namespace

ChatTools read_anthropic_tools(
    const FieldReader& fields,
    const Limits& limits) {
  const auto max_tools = static_cast<size_t>(limits.max_tools);
  if (const OrderedJson* tools = fields.list("tools", max_tools)) {
    for (size_t i = 0; i < tools->size(); ++i) {
      check_type((*tools)[i], fmt::format("{}[{}]", fields.path("tools"), i));
    }
  }
  OrderedJson listed = OrderedJson::array();
  for (const FieldReader& tool : fields.objects("tools", max_tools)) {
    listed.push_back(read_tool(tool, limits));
  }
  ChatTools out = offer_tools(fields, std::move(listed));
  if (auto choice = fields.object("tool_choice")) {
    read_choice(*choice, out);
  }
  return out;
}

}  // namespace mlxx::api
