#include "mlxx/text/tool_formats/string_grammar.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "mlxx/base/error.h"
#include "mlxx/text/tool_formats/call_writer.h"
#include "mlxx/text/tool_formats/schema_view.h"

namespace mlxx::text {
namespace {

[[noreturn]] void refuse(const std::string& place, const std::string& what) {
  fail(
      ErrorKind::invalid_request,
      place,
      "the schema can't be enforced: {}",
      what);
}

// JSON schema searches for a pattern, a grammar matches all of the text.
std::string whole_pattern(std::string pattern, const std::string& place) {
  bool from_start = pattern.starts_with('^');
  if (from_start) {
    pattern.erase(0, 1);
  }
  size_t backslashes = 0;
  while (backslashes + 1 < pattern.size() &&
         pattern[pattern.size() - 2 - backslashes] == '\\') {
    ++backslashes;
  }
  bool to_end = pattern.ends_with('$') && backslashes % 2 == 0;
  if (to_end) {
    pattern.pop_back();
  }
  bool in_class = false;
  bool alternatives = false;
  for (size_t i = 0; i < pattern.size(); ++i) {
    char c = pattern[i];
    if (c == '\\') {
      ++i;
    } else if (c == '[') {
      in_class = true;
    } else if (c == ']') {
      in_class = false;
    } else if (!in_class && (c == '^' || c == '$')) {
      refuse(
          place,
          fmt::format("an anchor inside of pattern {}", json_quote(pattern)));
    }
    alternatives |= c == '|';
  }
  if (alternatives && (from_start || to_end) &&
      !(pattern.starts_with('(') && pattern.ends_with(')'))) {
    refuse(
        place,
        fmt::format(
            "an anchor for one of several in pattern {}",
            json_quote(pattern)));
  }
  std::string slashed;
  for (size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] == '\\' && i + 1 < pattern.size()) {
      slashed += pattern[i++];
      slashed += pattern[i];
    } else if (pattern[i] == '/') {
      slashed += "\\/";
    } else if (pattern[i] == '\n') {
      slashed += "\\n";
    } else {
      slashed += pattern[i];
    }
  }
  return fmt::format(
      "/{}({}){}/",
      from_start ? "" : "(?s:.*)",
      slashed,
      to_end ? "" : "(?s:.*)");
}

const char* format_pattern(std::string_view format) {
  static const std::map<std::string_view, const char*> known = {
      {"date", "/[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])/"},
      {"time",
       "/([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,9})?(Z|[+-]([01]["
       "0-9]|2[0-3]):[0-5][0-9])/"},
      {"date-time",
       "/[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])T([01][0-9]|2[0-3]):["
       "0-5][0-9]:[0-5][0-9](\\.[0-9]{1,9})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-"
       "9])/"},
      {"uuid",
       "/[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-"
       "F]{12}/"},
      {"email",
       "/[A-Za-z0-9._%+-]{1,64}@[A-Za-z0-9-]{1,63}(\\.[A-Za-z0-9-]{1,63}){1,4}"
       "/"},
      {"ipv4",
       "/((25[0-5]|2[0-4][0-9]|1?[0-9]?[0-9])\\.){3}(25[0-5]|2[0-4][0-9]|1?[0-"
       "9]?[0-9])/"},
      {"uri", "/[a-z][a-z0-9+.-]{0,30}:[^\\x00-\\x20]{1,2000}/"},
  };
  auto found = known.find(format);
  return found == known.end() ? nullptr : found->second;
}

bool only_strings(const OrderedJson& list) {
  return std::all_of(list.begin(), list.end(), [](const OrderedJson& one) {
    return one.is_string();
  });
}

std::string one_of(
    LarkWriter& lark,
    const OrderedJson& values,
    const std::string& close,
    const std::string& place) {
  std::vector<std::string> literals;
  for (const OrderedJson& value : values) {
    std::string text = value.get<std::string>();
    if (text.find(close) != text.npos) {
      refuse(
          place,
          fmt::format("{} ends the value {}", close, json_quote(text)));
    }
    literals.push_back(lark.literal(text + close));
  }
  std::string name = lark.fresh("value");
  lark.rule(name, fmt::format("{}", fmt::join(literals, " | ")));
  return name;
}

// Whether the schema restricts nothing but the type, and a string is allowed.
bool free_string(
    const OrderedJson& root,
    const OrderedJson& said,
    const std::string& place,
    int depth) {
  const OrderedJson& schema = resolved(root, said, place);
  for (const char* key : {"anyOf", "oneOf"}) {
    if (schema.contains(key) && schema[key].is_array() && depth < 8) {
      return std::any_of(
          schema[key].begin(),
          schema[key].end(),
          [&](const OrderedJson& one) {
            return free_string(root, one, place, depth + 1);
          });
    }
  }
  std::vector<std::string> types = type_names(schema);
  if (types.empty()) {
    return !has_other_keywords(schema, {});
  }
  bool strings = std::find(types.begin(), types.end(), "string") != types.end();
  for (const char* key :
       {"enum", "const", "pattern", "format", "minLength", "maxLength"}) {
    strings = strings && !schema.contains(key);
  }
  return strings;
}

}  // namespace

std::optional<std::string> string_up_to(
    LarkWriter& lark,
    const OrderedJson& root,
    const OrderedJson& schema,
    const std::string& close,
    const std::string& place) {
  auto list = schema.find("enum");
  if (list != schema.end() && list->is_array() && !list->empty() &&
      only_strings(*list)) {
    allow_keywords(schema, {"enum", "type"}, place);
    return one_of(lark, *list, close, place);
  }
  auto one = schema.find("const");
  if (one != schema.end() && one->is_string()) {
    allow_keywords(schema, {"const", "type"}, place);
    return one_of(lark, OrderedJson::array({*one}), close, place);
  }
  if (free_string(root, schema, place, 0)) {
    return lark.any_up_to(close);
  }
  std::vector<std::string> types = type_names(schema);
  if (types != std::vector<std::string>{"string"}) {
    return std::nullopt;
  }
  allow_keywords(
      schema,
      {"type", "pattern", "format", "minLength", "maxLength"},
      place);
  std::string body = "/(?s:.*)/";
  if (schema.contains("pattern")) {
    if (!schema["pattern"].is_string()) {
      refuse(place, "a pattern that is no text");
    }
    body = whole_pattern(schema["pattern"].get<std::string>(), place);
  }
  if (schema.contains("format")) {
    const char* pattern = schema["format"].is_string()
        ? format_pattern(schema["format"].get<std::string>())
        : nullptr;
    if (pattern == nullptr) {
      refuse(place, fmt::format("format {}", schema["format"].dump()));
    }
    body += fmt::format(" & {}", pattern);
  }
  auto length = [&](const char* key) -> std::optional<uint64_t> {
    if (!schema.contains(key)) {
      return std::nullopt;
    }
    if (!schema[key].is_number_unsigned() ||
        schema[key].get<uint64_t>() > 1'000'000) {
      refuse(place, fmt::format("{} {}", key, schema[key].dump()));
    }
    return schema[key].get<uint64_t>();
  };
  std::optional<uint64_t> least = length("minLength");
  std::optional<uint64_t> most = length("maxLength");
  if (least || most) {
    if (most && *most < least.value_or(0)) {
      refuse(place, "maxLength is less than minLength");
    }
    body += fmt::format(
        " & /(?s:.){{{},{}}}/",
        least.value_or(0),
        most ? std::to_string(*most) : "");
  }
  return lark.terminal_up_to(body, close);
}

}  // namespace mlxx::text
