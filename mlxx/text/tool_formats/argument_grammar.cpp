#include "mlxx/text/tool_formats/argument_grammar.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "mlxx/base/error.h"
#include "mlxx/text/tool_formats/call_writer.h"
#include "mlxx/text/tool_formats/schema_view.h"
#include "mlxx/text/tool_formats/string_grammar.h"

namespace mlxx::text {
namespace {

constexpr const char* kAnyName = "/[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}/";

std::string place_of(const ConstrainedTool& tool) {
  return fmt::format("parameters of tool {}", tool.name);
}

const OrderedJson& any_object() {
  static const OrderedJson schema = {{"type", "object"}};
  return schema;
}

// `items` in their order, with `separator` between those that are there.
struct Item {
  std::string body;
  bool required = false;
};
std::string in_order(
    LarkWriter& lark,
    const std::vector<Item>& items,
    const std::string& separator) {
  // first: nothing was written yet; then: something was.
  std::string first = lark.fresh("first");
  std::string then = lark.fresh("then");
  lark.rule(first, "");
  lark.rule(then, "");
  for (size_t i = items.size(); i-- > 0;) {
    std::string item = lark.fresh("item");
    lark.rule(item, items[i].body);
    std::string next_first = lark.fresh("first");
    std::string next_then = lark.fresh("then");
    std::string skip_first = items[i].required ? "" : " | " + first;
    std::string skip_then = items[i].required ? "" : " | " + then;
    lark.rule(next_first, fmt::format("{} {}{}", item, then, skip_first));
    lark.rule(
        next_then,
        fmt::format("{} {} {}{}", separator, item, then, skip_then));
    first = next_first;
    then = next_then;
  }
  return first;
}

// What follows the name of a parameter between tags, to its end.
std::string tagged_value(
    LarkWriter& lark,
    const OrderedJson& root,
    const OrderedJson& said,
    const TagLayout& layout,
    const std::string& place) {
  const OrderedJson& schema = resolved(root, said, place);
  if (std::optional<std::string> string =
          string_up_to(lark, root, schema, layout.close, place)) {
    return fmt::format("{} {}", lark.literal(layout.after_name), *string);
  }
  return fmt::format(
      "{} {} {}",
      lark.literal(
          layout.after_other_name.empty() ? layout.after_name
                                          : layout.after_other_name),
      LarkWriter::json(part_of_schema(root, said)),
      lark.literal(layout.close));
}

// What Gemma writes: values of any depth in a notation of its own.
class BareWriter {
 public:
  BareWriter(
      LarkWriter& lark,
      const OrderedJson& root,
      std::string quote,
      std::string place)
      : lark_(lark),
        root_(root),
        quote_(std::move(quote)),
        place_(std::move(place)) {}

  std::string object(const OrderedJson& schema, int depth) {
    std::vector<Item> items;
    for (const SchemaProperty& property : object_properties(schema, place_)) {
      check_key(property.name);
      items.push_back(
          {fmt::format(
               "{} {}",
               lark_.literal(property.name + ":"),
               value(*property.schema, depth + 1)),
           property.required});
    }
    return fmt::format("\"{{\" {} \"}}\"", in_order(lark_, items, "\",\""));
  }

  std::string any_object_rule() {
    std::string any = any_rule();
    std::string name = lark_.fresh("NAME");
    lark_.rule(name, kAnyName);
    std::string pair = lark_.fresh("pair");
    lark_.rule(pair, fmt::format("{} \":\" {}", name, any));
    return fmt::format("\"{{\" ({0} (\",\" {0})*)? \"}}\"", pair);
  }

 private:
  static constexpr int kDeepest = 32;

  void check_key(const std::string& name) {
    if (name.empty() || name.find_first_of(":,{}[]<> \n\"'") != name.npos) {
      fail(
          ErrorKind::invalid_request,
          place_,
          "the schema can't be enforced: no parameter can be named {}",
          json_quote(name));
    }
  }

  // The name of a rule.
  std::string value(const OrderedJson& said, int depth) {
    const OrderedJson& schema = resolved(root_, said, place_);
    auto known = rules_.find(&schema);
    if (known != rules_.end()) {
      return known->second;
    }
    if (depth > kDeepest) {
      fail(
          ErrorKind::invalid_request,
          place_,
          "the schema can't be enforced: it is nested deeper than {}",
          kDeepest);
    }
    std::string name = lark_.fresh("value");
    rules_[&schema] = name;  // first: it may contain itself
    lark_.rule(name, body(schema, depth));
    return name;
  }

  std::string body(const OrderedJson& schema, int depth) {
    for (const char* key : {"anyOf", "oneOf"}) {
      if (auto list = schema.find(key); list != schema.end()) {
        allow_keywords(schema, {key}, place_);
        if (!list->is_array() || list->empty()) {
          fail(
              ErrorKind::invalid_request,
              place_,
              "the schema can't be enforced: {} is no list",
              key);
        }
        std::vector<std::string> rules;
        for (const OrderedJson& one : *list) {
          rules.push_back(value(one, depth + 1));
        }
        return fmt::format("{}", fmt::join(rules, " | "));
      }
    }
    if (auto list = schema.find("enum"); list != schema.end()) {
      allow_keywords(schema, {"enum", "type"}, place_);
      std::vector<std::string> values;
      for (const OrderedJson& one : *list) {
        values.push_back(lark_.literal(constant(one)));
      }
      return fmt::format("{}", fmt::join(values, " | "));
    }
    if (auto one = schema.find("const"); one != schema.end()) {
      allow_keywords(schema, {"const", "type"}, place_);
      return lark_.literal(constant(*one));
    }
    std::vector<std::string> types = type_names(schema);
    if (types.empty()) {
      allow_keywords(schema, {}, place_);
      return any_rule();
    }
    std::vector<std::string> rules;
    for (const std::string& type : types) {
      rules.push_back(of_type(type, schema, depth, types.size() > 1));
    }
    return fmt::format("{}", fmt::join(rules, " | "));
  }

  std::string of_type(
      const std::string& type,
      const OrderedJson& schema,
      int depth,
      bool alone) {
    if (type == "object") {
      return schema.contains("properties") || alone ? object(schema, depth)
                                                    : any_object_rule();
    }
    if (type == "array") {
      return array(schema, depth);
    }
    if (type == "string") {
      OrderedJson only = schema;
      only["type"] = "string";
      std::string open = lark_.literal(quote_);
      std::optional<std::string> text =
          string_up_to(lark_, root_, only, quote_, place_);
      return fmt::format("{} {}", open, *text);
    }
    OrderedJson only = schema;
    only["type"] = type;
    return LarkWriter::json(only);
  }

  std::string array(const OrderedJson& schema, int depth) {
    allow_keywords(schema, {"type", "items", "minItems", "maxItems"}, place_);
    std::string item = schema.contains("items")
        ? value(schema["items"], depth + 1)
        : any_rule();
    auto bound = [&](const char* key, int64_t otherwise) {
      auto found = schema.find(key);
      return found != schema.end() && found->is_number_integer()
          ? found->get<int64_t>()
          : otherwise;
    };
    int64_t least = bound("minItems", 0);
    int64_t most = bound("maxItems", -1);
    if (least < 0 || least > 1000 || most > 1000 ||
        (most >= 0 && most < least)) {
      fail(
          ErrorKind::invalid_request,
          place_,
          "the schema can't be enforced: bounds of a list are {} and {}",
          least,
          most);
    }
    if (most == 0) {
      return "\"[]\"";
    }
    std::string more = most < 0
        ? fmt::format("{{{},}}", std::max<int64_t>(least - 1, 0))
        : fmt::format("{{{},{}}}", std::max<int64_t>(least - 1, 0), most - 1);
    std::string list = fmt::format("{} (\",\" {}){}", item, item, more);
    return least == 0 ? fmt::format("\"[\" ({})? \"]\"", list)
                      : fmt::format("\"[\" {} \"]\"", list);
  }

  std::string constant(const OrderedJson& value) {
    if (value.is_string()) {
      return quote_ + value.get<std::string>() + quote_;
    }
    if (value.is_object() || value.is_array()) {
      fail(
          ErrorKind::invalid_request,
          place_,
          "the schema can't be enforced: {} as a fixed value",
          value.type_name());
    }
    return value.dump();
  }

  // Numbers, words, strings; no lists or objects, which would never end.
  std::string any_rule() {
    if (any_.empty()) {
      any_ = lark_.fresh("any");
      lark_.rule(
          any_,
          fmt::format(
              "{} | {} {}",
              LarkWriter::json({{"type", {"number", "boolean", "null"}}}),
              lark_.literal(quote_),
              lark_.any_up_to(quote_)));
    }
    return any_;
  }

  LarkWriter& lark_;
  const OrderedJson& root_;
  std::string quote_;
  std::string place_;
  std::string any_;
  std::map<const OrderedJson*, std::string> rules_;
};

}  // namespace

std::string json_arguments(LarkWriter&, const ConstrainedTool& tool) {
  if (tool.any) {
    return LarkWriter::json(any_object());
  }
  const OrderedJson& root = *tool.parameters;
  const OrderedJson& schema = resolved(root, root, place_of(tool));
  auto types = type_names(schema);
  if (!types.empty() && types != std::vector<std::string>{"object"}) {
    fail(
        ErrorKind::invalid_request,
        place_of(tool),
        "the schema can't be enforced: its type is {}, not object",
        schema["type"].dump());
  }
  // Without a type any value would do; arguments are an object.
  OrderedJson typed = root;
  if (types.empty() && !root.contains("$ref")) {
    typed["type"] = "object";
  }
  return LarkWriter::json(typed);
}

std::string tagged_arguments(
    LarkWriter& lark,
    const ConstrainedTool& tool,
    const TagLayout& layout) {
  std::string place = place_of(tool);
  if (tool.any) {
    std::string name = lark.fresh("NAME");
    lark.rule(name, kAnyName);
    std::string pair = lark.fresh("pair");
    lark.rule(
        pair,
        fmt::format(
            "{} {} {} {}",
            lark.literal(layout.before_name),
            name,
            lark.literal(layout.after_name),
            lark.any_up_to(layout.close)));
    return pair + "*";
  }
  const OrderedJson& root = *tool.parameters;
  std::string body;
  for (const SchemaProperty& property :
       object_properties(resolved(root, root, place), place)) {
    if (property.name.empty() ||
        property.name.find_first_of("<>\"'\n") != property.name.npos) {
      fail(
          ErrorKind::invalid_request,
          place,
          "the schema can't be enforced: no parameter can be named {}",
          json_quote(property.name));
    }
    std::string pair = lark.fresh("pair");
    lark.rule(
        pair,
        fmt::format(
            "{} {}",
            lark.literal(layout.before_name + property.name),
            tagged_value(lark, root, *property.schema, layout, place)));
    body += fmt::format(
        "{}{}{}",
        body.empty() ? "" : " ",
        pair,
        property.required ? "" : "?");
  }
  return body;
}

std::string keyword_arguments(LarkWriter& lark, const ConstrainedTool& tool) {
  std::string place = place_of(tool);
  if (tool.any) {
    std::string name = lark.fresh("NAME");
    lark.rule(name, "/[A-Za-z_][A-Za-z0-9_]{0,63}/");
    std::string pair = lark.fresh("pair");
    lark.rule(
        pair,
        fmt::format(
            "{} \"=\" {}",
            name,
            LarkWriter::json(OrderedJson::object())));
    return fmt::format("({0} (\", \" {0})*)?", pair);
  }
  const OrderedJson& root = *tool.parameters;
  std::vector<Item> items;
  for (const SchemaProperty& property :
       object_properties(resolved(root, root, place), place)) {
    bool word = !property.name.empty() &&
        std::all_of(property.name.begin(), property.name.end(), [](char c) {
          return std::isalnum(static_cast<unsigned char>(c)) || c == '_' ||
              c == '-';
        });
    if (!word) {
      fail(
          ErrorKind::invalid_request,
          place,
          "the schema can't be enforced: no parameter can be named {}",
          json_quote(property.name));
    }
    items.push_back(
        {fmt::format(
             "{} {}",
             lark.literal(property.name + "="),
             LarkWriter::json(part_of_schema(root, *property.schema))),
         property.required});
  }
  return in_order(lark, items, "\", \"");
}

std::string bare_arguments(
    LarkWriter& lark,
    const ConstrainedTool& tool,
    const std::string& quote) {
  const OrderedJson& root = *tool.parameters;
  std::string place = place_of(tool);
  BareWriter writer(lark, root, quote, place);
  return tool.any ? writer.any_object_rule()
                  : writer.object(resolved(root, root, place), 0);
}

}  // namespace mlxx::text
