#include "mlxx/api/offered_tools.h"

#include <set>

#include <nlohmann/json.hpp>

#include "mlxx/api/json_writer.h"

namespace mlxx::api {

namespace {

const std::string& name_of(const OrderedJson& tool) {
  return tool["function"]["name"].get_ref<const std::string&>();
}

void check_size(
    const FieldReader& reader,
    std::string_view field,
    size_t bytes,
    const Limits& limits) {
  if (bytes > static_cast<size_t>(limits.max_schema_bytes)) {
    reader.refuse(
        field,
        fmt::format(
            "has {} bytes, {} are allowed",
            bytes,
            limits.max_schema_bytes),
        "string_above_max_length");
  }
}

}  // namespace

OrderedJson function_tool(
    const FieldReader& reader,
    const std::string& name,
    const std::string& description,
    const OrderedJson* parameters,
    std::string_view parameters_name,
    const Limits& limits) {
  if (!is_function_name(name)) {
    reader.refuse(
        "name",
        "must be 1 to 128 letters, digits or any of _ - . / :",
        "invalid_value");
  }
  check_size(reader, "description", description.size(), limits);
  OrderedJson function = {{"name", name}};
  if (!description.empty()) {
    function["description"] = description;
  }
  if (parameters) {
    if (!parameters->is_object()) {
      reader.refuse(
          parameters_name,
          type_problem("an object", *parameters),
          "invalid_type");
    }
    check_size(reader, parameters_name, write_json(*parameters).size(), limits);
    function["parameters"] = *parameters;
  }
  if (auto strict = reader.boolean("strict")) {
    function["strict"] = *strict;
  }
  return {{"type", "function"}, {"function", std::move(function)}};
}

void check_direct_call(const FieldReader& tool, std::string_view code) {
  const OrderedJson* callers = tool.list("allowed_callers", 16);
  bool direct = !callers;
  for (size_t i = 0; callers && i < callers->size(); ++i) {
    direct = direct || (*callers)[i] == "direct";
  }
  if (!direct) {
    tool.refuse(
        "allowed_callers",
        fmt::format("must have \"direct\": the server runs no {}", code),
        "unsupported_value");
  }
  if (tool.boolean("defer_loading").value_or(false)) {
    tool.refuse(
        "defer_loading",
        "must be false: there is no search for tools",
        "unsupported_value");
  }
}

ChatTools offer_tools(const FieldReader& fields, OrderedJson listed) {
  ChatTools out;
  std::set<std::string> names;
  for (const OrderedJson& tool : listed) {
    if (!names.insert(name_of(tool)).second) {
      fields.refuse(
          "tools",
          fmt::format("has two of the name {}", name_of(tool)),
          "invalid_value");
    }
  }
  if (!listed.empty()) {
    out.listed = std::make_shared<const OrderedJson>(std::move(listed));
    out.callable = out.listed;
    out.choice = text::ToolChoice::automatic;
  }
  return out;
}

bool allow_tools(ChatTools& tools, const std::vector<std::string>& names) {
  OrderedJson callable = OrderedJson::array();
  std::set<std::string> wanted(names.begin(), names.end());
  if (tools.listed) {
    for (const OrderedJson& tool : *tools.listed) {
      if (wanted.contains(name_of(tool))) {
        callable.push_back(tool);
      }
    }
  }
  if (callable.size() != wanted.size() || callable.empty()) {
    return false;
  }
  tools.callable = std::make_shared<const OrderedJson>(std::move(callable));
  return true;
}

bool name_tool(ChatTools& tools, const std::string& name) {
  if (!allow_tools(tools, {name})) {
    return false;
  }
  tools.choice = text::ToolChoice::named;
  tools.named = name;
  return true;
}

void forbid_tools(ChatTools& tools) {
  tools.choice = text::ToolChoice::none;
  tools.callable = nullptr;
}

}  // namespace mlxx::api
