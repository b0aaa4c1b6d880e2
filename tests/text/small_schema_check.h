#pragma once

#include <regex>
#include <string>

#include <nlohmann/json.hpp>

#include "mlxx/base/json.h"

namespace mlxx::text {

// "" if `value` satisfies `schema`, else what is wrong. Of JSON schema only
// what the tests use.
inline std::string schema_fault(
    const OrderedJson& root,
    const OrderedJson& schema,
    const OrderedJson& value) {
  if (schema.contains("$ref")) {
    std::string ref = schema["$ref"];
    return schema_fault(
        root,
        root.at(OrderedJson::json_pointer(ref.substr(1))),
        value);
  }
  if (schema.contains("enum")) {
    for (const OrderedJson& one : schema["enum"]) {
      if (one == value) {
        return "";
      }
    }
    return value.dump() + " is not in " + schema["enum"].dump();
  }
  auto is = [&](const std::string& type) {
    return type == "object" ? value.is_object()
        : type == "array"   ? value.is_array()
        : type == "string"  ? value.is_string()
        : type == "integer" ? value.is_number_integer()
        : type == "number"  ? value.is_number()
        : type == "boolean" ? value.is_boolean()
                            : value.is_null();
  };
  if (schema.contains("type")) {
    bool fits = false;
    if (schema["type"].is_string()) {
      fits = is(schema["type"]);
    } else {
      for (const std::string type : schema["type"]) {
        fits |= is(type);
      }
    }
    if (!fits) {
      return value.dump() + " is no " + schema["type"].dump();
    }
  }
  if (value.is_string()) {
    const std::string& text = value.get_ref<const std::string&>();
    if (schema.contains("pattern") &&
        !std::regex_search(text, std::regex(std::string(schema["pattern"])))) {
      return text + " does not match " + schema["pattern"].dump();
    }
    if (text.size() > schema.value("maxLength", size_t{1} << 20) ||
        text.size() < schema.value("minLength", size_t{0})) {
      return text + " has the wrong length";
    }
  }
  if (value.is_number()) {
    if (value.get<double>() < schema.value("minimum", -1e300) ||
        value.get<double>() > schema.value("maximum", 1e300)) {
      return value.dump() + " is out of range";
    }
  }
  if (value.is_array()) {
    if (value.size() > schema.value("maxItems", size_t{1} << 20) ||
        value.size() < schema.value("minItems", size_t{0})) {
      return value.dump() + " has the wrong length";
    }
    for (const OrderedJson& item : value) {
      if (schema.contains("items")) {
        std::string fault = schema_fault(root, schema["items"], item);
        if (!fault.empty()) {
          return fault;
        }
      }
    }
  }
  if (value.is_object()) {
    for (const std::string name :
         schema.value("required", OrderedJson::array())) {
      if (!value.contains(name)) {
        return name + " is missing";
      }
    }
    OrderedJson properties = schema.value("properties", OrderedJson::object());
    for (const auto& [name, member] : value.items()) {
      if (properties.contains(name)) {
        std::string fault = schema_fault(root, properties[name], member);
        if (!fault.empty()) {
          return name + ": " + fault;
        }
      } else if (
          schema.contains("additionalProperties") &&
          schema["additionalProperties"] == false) {
        return name + " is not allowed";
      }
    }
  }
  return "";
}

}  // namespace mlxx::text
