#include "mlxx/text/tool_formats/declared_tools.h"

#include <cmath>
#include <set>

#include <nlohmann/json.hpp>

#include "mlxx/base/error.h"
#include "mlxx/text/tool_formats/call_writer.h"
#include "mlxx/text/tool_formats/markup_scan.h"
#include "mlxx/text/tool_formats/python_literal.h"

namespace mlxx::text {
namespace {

// Types that a schema allows, as far as it says so; empty: any.
using Types = std::set<std::string>;

constexpr int kDeepest = 16;  // of references and alternatives

const OrderedJson* member(const OrderedJson& object, std::string_view key) {
  if (!object.is_object()) {
    return nullptr;
  }
  auto found = object.find(std::string(key));
  return found == object.end() ? nullptr : &*found;
}

std::string type_of(const OrderedJson& value) {
  if (value.is_number_integer()) {
    return "integer";
  }
  return value.is_boolean() ? "boolean" : std::string(value.type_name());
}

// False: any type is allowed.
bool collect_types(
    const OrderedJson& root,
    const OrderedJson& schema,
    int depth,
    Types& types) {
  if (depth > kDeepest || !schema.is_object()) {
    return false;
  }
  if (const OrderedJson* ref = member(schema, "$ref");
      ref != nullptr && ref->is_string()) {
    std::string text = ref->get<std::string>();
    try {
      if (text.starts_with("#")) {
        auto pointer = OrderedJson::json_pointer(text.substr(1));
        return collect_types(root, root.at(pointer), depth + 1, types);
      }
    } catch (const OrderedJson::exception&) {
    }
    return false;
  }
  if (const OrderedJson* type = member(schema, "type")) {
    if (type->is_string()) {
      types.insert(type->get<std::string>());
      return true;
    }
    if (type->is_array()) {
      for (const OrderedJson& one : *type) {
        if (one.is_string()) {
          types.insert(one.get<std::string>());
        }
      }
      return !types.empty();
    }
  }
  if (const OrderedJson* values = member(schema, "enum");
      values != nullptr && values->is_array() && !values->empty()) {
    for (const OrderedJson& value : *values) {
      types.insert(type_of(value));
    }
    return true;
  }
  if (const OrderedJson* value = member(schema, "const")) {
    types.insert(type_of(*value));
    return true;
  }
  for (const char* key : {"anyOf", "oneOf"}) {
    if (const OrderedJson* list = member(schema, key);
        list != nullptr && list->is_array() && !list->empty()) {
      bool known = true;
      for (const OrderedJson& one : *list) {
        known = collect_types(root, one, depth + 1, types) && known;
      }
      return known;
    }
  }
  if (const OrderedJson* list = member(schema, "allOf");
      list != nullptr && list->is_array()) {
    for (const OrderedJson& one : *list) {
      if (collect_types(root, one, depth + 1, types)) {
        return true;
      }
    }
  }
  return false;
}

// Nothing: any type.
std::optional<Types> types_of(
    const OrderedJson* parameters,
    std::string_view name) {
  if (parameters == nullptr) {
    return std::nullopt;
  }
  const OrderedJson* schema = nullptr;
  if (const OrderedJson* properties = member(*parameters, "properties")) {
    schema = member(*properties, name);
  }
  if (schema == nullptr) {
    schema = member(*parameters, "additionalProperties");
  }
  Types types;
  if (schema == nullptr || !collect_types(*parameters, *schema, 0, types)) {
    return std::nullopt;
  }
  return types;
}

bool fits(const OrderedJson& value, const Types& types) {
  if (value.is_number()) {
    double number = value.get<double>();
    bool whole = value.is_number_integer() || number == std::floor(number);
    return types.contains("number") || (whole && types.contains("integer"));
  }
  return types.contains(type_of(value));
}

std::optional<OrderedJson> parsed(std::string_view text) {
  try {
    return parse_ordered_json(text, "argument");
  } catch (const Error&) {
    return std::nullopt;
  }
}

}  // namespace

const OrderedJson* declared_tool(
    const OrderedJson* tools,
    std::string_view name) {
  if (tools == nullptr || !tools->is_array()) {
    return nullptr;
  }
  for (const OrderedJson& tool : *tools) {
    const OrderedJson* function = member(tool, "function");
    const OrderedJson& said = function != nullptr ? *function : tool;
    const OrderedJson* own = member(said, "name");
    if (own != nullptr && own->is_string() &&
        own->get_ref<const std::string&>() == name) {
      return &said;
    }
  }
  return nullptr;
}

const OrderedJson* declared_parameters(
    const OrderedJson* tools,
    std::string_view name) {
  const OrderedJson* tool = declared_tool(tools, name);
  return tool == nullptr ? nullptr : member(*tool, "parameters");
}

bool takes_strings_only(const OrderedJson* parameters, std::string_view name) {
  std::optional<Types> types = types_of(parameters, name);
  return types && *types == Types{"string"};
}

std::string typed_argument(
    const OrderedJson* parameters,
    std::string_view name,
    std::string_view text) {
  std::optional<Types> types = types_of(parameters, name);
  if (types && *types == Types{"string"}) {
    return json_quote(text);
  }
  std::string_view bare = trim(text);
  std::string value(bare);
  std::optional<OrderedJson> json = parsed(value);
  if (!json) {
    if (std::optional<std::string> python = python_literal_to_json(bare)) {
      value = *python;
      json = parsed(value);
    }
  }
  if (!json) {
    return json_quote(text);
  }
  if (!types) {
    // A quoted text is a string as it stands, quotes and all.
    return json->is_string() ? json_quote(text) : value;
  }
  if (json->is_string() || !fits(*json, *types)) {
    return json->is_string() && !types->contains("string") ? value
                                                           : json_quote(text);
  }
  // 5.0 where an integer is wanted.
  if (json->is_number_float() && !types->contains("number") &&
      std::abs(json->get<double>()) < 9e15) {
    return std::to_string(json->get<int64_t>());
  }
  return value;
}

}  // namespace mlxx::text
