#include "mlxx/text/tool_formats/schema_view.h"

#include <algorithm>
#include <set>

#include <nlohmann/json.hpp>

#include "mlxx/base/error.h"
#include "mlxx/text/tool_formats/call_writer.h"

namespace mlxx::text {
namespace {

const OrderedJson& any_value() {
  static const OrderedJson schema = OrderedJson::object();
  return schema;
}

}  // namespace

const OrderedJson& resolved(
    const OrderedJson& root,
    const OrderedJson& schema,
    std::string_view place) {
  const OrderedJson* at = &schema;
  for (int depth = 0; depth < 32; ++depth) {
    if (at->is_boolean() && at->get<bool>()) {
      return any_value();
    }
    if (!at->is_object()) {
      fail(
          ErrorKind::invalid_request,
          place,
          "the schema can't be enforced: {} is no schema",
          at->type_name());
    }
    auto ref = at->find("$ref");
    if (ref == at->end()) {
      return *at;
    }
    std::string text = ref->is_string() ? ref->get<std::string>() : "";
    if (!text.starts_with("#")) {
      fail(
          ErrorKind::invalid_request,
          place,
          "the schema can't be enforced: $ref {} leads out of it",
          ref->dump());
    }
    try {
      at = &root.at(OrderedJson::json_pointer(text.substr(1)));
    } catch (const OrderedJson::exception&) {
      fail(
          ErrorKind::invalid_request,
          place,
          "the schema can't be enforced: $ref {} leads to nothing",
          json_quote(text));
    }
  }
  fail(
      ErrorKind::invalid_request,
      place,
      "the schema can't be enforced: its references go in a circle");
}

namespace {

// The first keyword that is neither allowed nor an annotation, or "".
std::string other_keyword(
    const OrderedJson& schema,
    const std::vector<std::string_view>& allowed) {
  static const std::set<std::string, std::less<>> kAnnotations = {
      "title",
      "description",
      "default",
      "examples",
      "example",
      "deprecated",
      "readOnly",
      "writeOnly",
      "$schema",
      "$id",
      "$comment",
      "$defs",
      "definitions",
      "nullable",
      "strict",
      "x-guidance"};
  for (const auto& [key, value] : schema.items()) {
    if (!kAnnotations.contains(key) &&
        std::find(allowed.begin(), allowed.end(), key) == allowed.end()) {
      return key;
    }
  }
  return "";
}

}  // namespace

bool has_other_keywords(
    const OrderedJson& schema,
    const std::vector<std::string_view>& allowed) {
  return !other_keyword(schema, allowed).empty();
}

void allow_keywords(
    const OrderedJson& schema,
    const std::vector<std::string_view>& allowed,
    std::string_view place) {
  std::string other = other_keyword(schema, allowed);
  if (!other.empty()) {
    fail(
        ErrorKind::invalid_request,
        place,
        "the schema can't be enforced: {} is not supported here",
        json_quote(other));
  }
}

std::vector<SchemaProperty> object_properties(
    const OrderedJson& object,
    std::string_view place) {
  allow_keywords(
      object,
      {"type", "properties", "required", "additionalProperties"},
      place);
  if (auto type = type_names(object);
      !type.empty() && type != std::vector<std::string>{"object"}) {
    fail(
        ErrorKind::invalid_request,
        place,
        "the schema can't be enforced: its type is {}, not object",
        object["type"].dump());
  }
  std::vector<SchemaProperty> properties;
  if (auto found = object.find("properties"); found != object.end()) {
    if (!found->is_object()) {
      fail(
          ErrorKind::invalid_request,
          place,
          "the schema can't be enforced: its properties are no object");
    }
    for (const auto& [key, schema] : found->items()) {
      properties.push_back({key, &schema, false});
    }
  }
  if (auto found = object.find("required"); found != object.end()) {
    if (!found->is_array()) {
      fail(
          ErrorKind::invalid_request,
          place,
          "the schema can't be enforced: \"required\" is no list");
    }
    for (const OrderedJson& name : *found) {
      if (!name.is_string()) {
        fail(
            ErrorKind::invalid_request,
            place,
            "the schema can't be enforced: \"required\" has what is no name");
      }
      auto same = [&](const SchemaProperty& one) {
        return one.name == name.get_ref<const std::string&>();
      };
      auto known = std::find_if(properties.begin(), properties.end(), same);
      if (known != properties.end()) {
        known->required = true;
        continue;
      }
      const OrderedJson* schema = &any_value();
      if (auto more = object.find("additionalProperties");
          more != object.end() && more->is_object()) {
        schema = &*more;
      } else if (
          more != object.end() && more->is_boolean() && !more->get<bool>()) {
        fail(
            ErrorKind::invalid_request,
            place,
            "the schema can't be enforced: {} is required but not allowed",
            name.dump());
      }
      properties.push_back({name.get<std::string>(), schema, true});
    }
  }

  return properties;
}

OrderedJson part_of_schema(const OrderedJson& root, const OrderedJson& schema) {
  if (!schema.is_object()) {
    return schema;
  }
  OrderedJson part = schema;
  for (const char* key : {"$defs", "definitions"}) {
    if (root.is_object() && root.contains(key) && !part.contains(key)) {
      part[key] = root[key];
    }
  }
  return part;
}

OrderedJson without_annotations(const OrderedJson& schema) {
  if (schema.is_array()) {
    OrderedJson list = OrderedJson::array();
    for (const OrderedJson& one : schema) {
      list.push_back(without_annotations(one));
    }
    return list;
  }
  if (!schema.is_object()) {
    return schema;
  }
  static const std::set<std::string, std::less<>> kDropped =
      {"title", "description", "default", "examples", "example", "$comment"};
  // Their keys are names, not keywords.
  static const std::set<std::string, std::less<>> kNamed = {
      "properties",
      "patternProperties",
      "$defs",
      "definitions",
      "dependentSchemas"};
  OrderedJson result = OrderedJson::object();
  for (const auto& [key, value] : schema.items()) {
    if (kDropped.contains(key)) {
      continue;
    }
    if (key == "enum" || key == "const") {
      result[key] = value;
    } else if (kNamed.contains(key) && value.is_object()) {
      OrderedJson named = OrderedJson::object();
      for (const auto& [name, one] : value.items()) {
        named[name] = without_annotations(one);
      }
      result[key] = std::move(named);
    } else {
      result[key] = without_annotations(value);
    }
  }
  return result;
}

std::vector<std::string> type_names(const OrderedJson& schema) {
  std::vector<std::string> names;
  auto type = schema.find("type");
  if (type == schema.end()) {
    return names;
  }
  if (type->is_string()) {
    names.push_back(type->get<std::string>());
  } else if (type->is_array()) {
    for (const OrderedJson& one : *type) {
      if (one.is_string()) {
        names.push_back(one.get<std::string>());
      }
    }
  }
  return names;
}

}  // namespace mlxx::text
