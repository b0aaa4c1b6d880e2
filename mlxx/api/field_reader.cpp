#include "mlxx/api/field_reader.h"

#include <algorithm>
#include <cmath>

#include <nlohmann/json.hpp>

#include "mlxx/api/answer.h"
#include "mlxx/base/utf8.h"

namespace mlxx::api {

namespace {

constexpr size_t kMaxIgnored = 32;  // names that are listed
constexpr size_t kMaxNameBytes = 64;

std::string joined(const std::string& path, std::string_view name) {
  return path.empty() ? std::string(name) : fmt::format("{}.{}", path, name);
}

}  // namespace

std::string printable_name(std::string_view name) {
  std::string out(name.substr(0, kMaxNameBytes));
  for (char& letter : out) {
    const bool plain = (letter >= 'a' && letter <= 'z') ||
        (letter >= 'A' && letter <= 'Z') || (letter >= '0' && letter <= '9') ||
        letter == '_' || letter == '-' || letter == '.' || letter == '[' ||
        letter == ']';
    letter = plain ? letter : '?';
  }
  return name.size() > kMaxNameBytes ? out + "..." : out;
}

std::string type_problem(std::string_view wanted, const OrderedJson& value) {
  const std::string_view found = value.type_name();
  return fmt::format(
      "must be {}, is {}{}",
      wanted,
      found == "null"                             ? ""
          : found == "object" || found == "array" ? "an "
                                                  : "a ",
      found);
}

std::optional<int64_t>
whole_number(const OrderedJson& value, int64_t min, int64_t max) {
  int64_t number = 0;
  if (value.is_number_unsigned()) {
    const auto wide = value.get<uint64_t>();
    if (wide > static_cast<uint64_t>(INT64_MAX)) {
      return std::nullopt;
    }
    number = static_cast<int64_t>(wide);
  } else if (value.is_number_integer()) {
    number = value.get<int64_t>();
  } else if (value.is_number_float()) {
    const auto real = value.get<double>();
    // Up to here every whole number has a double of its own.
    if (!(std::abs(real) <= 9007199254740992.0) || std::trunc(real) != real) {
      return std::nullopt;
    }
    number = static_cast<int64_t>(real);
  } else {
    return std::nullopt;
  }
  return number < min || number > max ? std::nullopt : std::optional(number);
}

FieldReader::FieldReader(
    const OrderedJson& body,
    const FieldTable& table,
    bool strict,
    std::vector<std::string>& ignored)
    : FieldReader(body, table, strict, ignored, "", "") {}

FieldReader::FieldReader(
    const OrderedJson& body,
    const FieldTable& table,
    bool strict,
    std::vector<std::string>& ignored,
    std::string path,
    std::string table_path)
    : body_(&body),
      table_(&table),
      strict_(strict),
      ignored_(&ignored),
      path_(std::move(path)),
      table_path_(std::move(table_path)) {
  if (!body.is_object()) {
    throw RequestError(
        400,
        fmt::format(
            "[{}] {}",
            path_.empty() ? "body" : path_,
            type_problem("an object", body)),
        path_);
  }
  check_names();
}

void FieldReader::check_names() const {
  for (const auto& [name, value] : body_->items()) {
    if (value.is_null()) {
      continue;
    }
    // A dot in a name would make it look like a nested one.
    const bool plain = name.find_first_of(".[]") == std::string::npos;
    const Field* field =
        plain ? table_->find(joined(table_path_, name)) : nullptr;
    if (field && field->status == FieldStatus::refused) {
      refuse(
          name,
          field->note.empty() ? "is not supported" : field->note,
          "unsupported_parameter");
    }
    if (field) {
      continue;
    }
    const std::string shown = joined(table_path_, printable_name(name));
    if (strict_) {
      throw RequestError(
          400,
          fmt::format("[{}] is unknown", shown),
          shown,
          "unknown_parameter");
    }
    if (ignored_->size() < kMaxIgnored &&
        std::find(ignored_->begin(), ignored_->end(), shown) ==
            ignored_->end()) {
      ignored_->push_back(shown);
    }
  }
}

const OrderedJson* FieldReader::find(std::string_view name) const {
  const Field* field = table_->find(joined(table_path_, name));
  if (!field || field->status != FieldStatus::honoured) {
    fail(
        ErrorKind::internal,
        "api",
        "{} reads {}, which its table does not call honoured",
        table_->endpoint,
        joined(table_path_, name));
  }
  auto it = body_->find(std::string(name));
  return it == body_->end() || it->is_null() ? nullptr : &*it;
}

std::string FieldReader::path(std::string_view name) const {
  return joined(path_, name);
}

void FieldReader::refuse(
    std::string_view name,
    std::string_view what,
    std::string_view code) const {
  throw RequestError(
      400,
      fmt::format("[{}] {}", path(name), what),
      path(name),
      std::string(code));
}

void FieldReader::missing(std::string_view name) const {
  refuse(name, "is required", "missing_required_parameter");
}

std::optional<bool> FieldReader::boolean(std::string_view name) const {
  const OrderedJson* value = find(name);
  if (!value) {
    return std::nullopt;
  }
  if (!value->is_boolean()) {
    refuse(name, type_problem("true or false", *value), "invalid_type");
  }
  return value->get<bool>();
}

std::optional<int64_t>
FieldReader::integer(std::string_view name, int64_t min, int64_t max) const {
  const OrderedJson* value = find(name);
  if (!value) {
    return std::nullopt;
  }
  if (!value->is_number()) {
    refuse(name, type_problem("a whole number", *value), "invalid_type");
  }
  const auto number = whole_number(*value, min, max);
  if (!number) {
    refuse(
        name,
        max == INT64_MAX
            ? fmt::format("must be a whole number of at least {}", min)
            : fmt::format("must be a whole number from {} to {}", min, max),
        "invalid_value");
  }
  return number;
}

std::optional<double>
FieldReader::number(std::string_view name, double min, double max) const {
  const OrderedJson* value = find(name);
  if (!value) {
    return std::nullopt;
  }
  if (!value->is_number()) {
    refuse(name, type_problem("a number", *value), "invalid_type");
  }
  const auto number = value->get<double>();
  if (!(number >= min && number <= max)) {  // false for NaN
    refuse(
        name,
        fmt::format("must be from {} to {}, is {}", min, max, number),
        "invalid_value");
  }
  return number;
}

std::optional<std::string> FieldReader::string(
    std::string_view name,
    size_t max_bytes) const {
  const OrderedJson* value = find(name);
  if (!value) {
    return std::nullopt;
  }
  if (!value->is_string()) {
    refuse(name, type_problem("a string", *value), "invalid_type");
  }
  const auto& text = value->get_ref<const std::string&>();
  if (text.size() > max_bytes) {
    refuse(
        name,
        fmt::format("has {} bytes, {} are allowed", text.size(), max_bytes),
        "string_above_max_length");
  }
  if (!is_valid_utf8(text)) {
    refuse(name, "is not valid UTF-8", "invalid_value");
  }
  return text;
}

std::string FieldReader::required_string(
    std::string_view name,
    size_t max_bytes) const {
  if (auto text = string(name, max_bytes)) {
    return *text;
  }
  missing(name);
}

std::optional<std::string> FieldReader::word(
    std::string_view name,
    std::initializer_list<std::string_view> allowed) const {
  auto text = string(name);
  if (text &&
      std::find(allowed.begin(), allowed.end(), *text) == allowed.end()) {
    refuse(
        name,
        fmt::format("must be one of \"{}\"", fmt::join(allowed, "\", \"")),
        "invalid_value");
  }
  return text;
}

const OrderedJson* FieldReader::list(std::string_view name, size_t max_items)
    const {
  const OrderedJson* value = find(name);
  if (!value) {
    return nullptr;
  }
  if (!value->is_array()) {
    refuse(name, type_problem("a list", *value), "invalid_type");
  }
  if (value->size() > max_items) {
    refuse(
        name,
        fmt::format("has {} items, {} are allowed", value->size(), max_items),
        "array_above_max_length");
  }
  return value;
}

std::optional<FieldReader> FieldReader::object(std::string_view name) const {
  const OrderedJson* value = find(name);
  if (!value) {
    return std::nullopt;
  }
  return FieldReader(
      *value,
      *table_,
      strict_,
      *ignored_,
      path(name),
      joined(table_path_, name));
}

std::vector<FieldReader> FieldReader::objects(
    std::string_view name,
    size_t max_items) const {
  std::vector<FieldReader> out;
  if (const OrderedJson* items = list(name, max_items)) {
    const std::string below = fmt::format("{}[]", joined(table_path_, name));
    for (size_t i = 0; i < items->size(); ++i) {
      out.push_back(FieldReader(
          (*items)[i],
          *table_,
          strict_,
          *ignored_,
          fmt::format("{}[{}]", path(name), i),
          below));
    }
  }
  return out;
}

}  // namespace mlxx::api
