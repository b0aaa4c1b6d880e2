#include "mlxx/base/json.h"

#include <cmath>
#include <set>

#include <nlohmann/json.hpp>

#include "mlxx/base/error.h"

namespace mlxx {

namespace {

// Refuses what nlohmann's own parser lets through: depth and duplicate keys.
// Runs as a first pass, so that nothing is built for a hostile text.
class Checker : public nlohmann::json_sax<Json> {
 public:
  Checker(std::string_view place, const JsonLimits& limits)
      : place_(place), limits_(limits) {}

  bool null() override {
    return true;
  }
  bool boolean(bool) override {
    return true;
  }
  bool number_integer(number_integer_t) override {
    return true;
  }
  bool number_unsigned(number_unsigned_t) override {
    return true;
  }
  bool number_float(number_float_t value, const string_t&) override {
    if (!std::isfinite(value)) {
      fail(ErrorKind::bad_file, place_, "number out of range");
    }
    return true;
  }
  bool string(string_t&) override {
    return true;
  }
  bool binary(binary_t&) override {
    return false;
  }
  bool start_object(std::size_t) override {
    enter();
    keys_.emplace_back();
    return true;
  }
  bool key(string_t& key) override {
    if (!limits_.allow_duplicate_keys && !keys_.back().insert(key).second) {
      fail(ErrorKind::bad_file, place_, "duplicate key '{}'", key);
    }
    return true;
  }
  bool end_object() override {
    keys_.pop_back();
    --depth_;
    return true;
  }
  bool start_array(std::size_t) override {
    enter();
    return true;
  }
  bool end_array() override {
    --depth_;
    return true;
  }
  bool parse_error(
      std::size_t position,
      const std::string& token,
      const nlohmann::detail::exception&) override {
    fail(
        ErrorKind::bad_file,
        place_,
        "not valid JSON at byte {} near '{}'",
        position,
        token.substr(0, 40));
  }

 private:
  void enter() {
    if (++depth_ > limits_.max_depth) {
      fail(
          ErrorKind::bad_file,
          place_,
          "nested deeper than {} levels",
          limits_.max_depth);
    }
  }

  std::string_view place_;
  const JsonLimits& limits_;
  int depth_ = 0;
  std::vector<std::set<std::string>> keys_;
};

template <typename J>
J parse(
    std::string_view text,
    std::string_view place,
    const JsonLimits& limits) {
  if (text.size() > limits.max_bytes) {
    fail(
        ErrorKind::bad_file,
        place,
        "{} bytes of JSON, the limit is {}",
        text.size(),
        limits.max_bytes);
  }
  if (text.starts_with("\xEF\xBB\xBF")) {
    text.remove_prefix(3);
  }
  Checker checker(place, limits);
  Json::sax_parse(text.begin(), text.end(), &checker);
  try {
    return J::parse(text.begin(), text.end());
  } catch (const nlohmann::json::exception& error) {
    fail(ErrorKind::bad_file, place, "not valid JSON, {}", error.what());
  }
}

}  // namespace

Json parse_json(
    std::string_view text,
    std::string_view place,
    const JsonLimits& limits) {
  return parse<Json>(text, place, limits);
}

OrderedJson parse_ordered_json(
    std::string_view text,
    std::string_view place,
    const JsonLimits& limits) {
  return parse<OrderedJson>(text, place, limits);
}

JsonView::JsonView(const Json& object, std::string place)
    : object_(&object), place_(std::move(place)) {
  if (!object.is_object()) {
    fail(
        ErrorKind::bad_file,
        place_,
        "must be an object, is {}",
        object.type_name());
  }
}

const Json* JsonView::find(std::string_view key) const {
  auto it = object_->find(std::string(key));
  return it == object_->end() || it->is_null() ? nullptr : &*it;
}

void JsonView::fail_at(std::string_view key, std::string_view what) const {
  fail(ErrorKind::bad_file, place_, "'{}' {}", key, what);
}

bool JsonView::has(std::string_view key) const {
  return find(key) != nullptr;
}

int64_t JsonView::integer(std::string_view key, int64_t min, int64_t max)
    const {
  const Json* value = find(key);
  if (!value) {
    fail_at(key, "is missing");
  }
  int64_t result = 0;
  if (value->is_number_unsigned()) {
    auto wide = value->get<uint64_t>();
    if (wide > static_cast<uint64_t>(INT64_MAX)) {
      fail_at(key, fmt::format("is {}, allowed {} to {}", wide, min, max));
    }
    result = static_cast<int64_t>(wide);
  } else if (value->is_number_integer()) {
    result = value->get<int64_t>();
  } else if (
      value->is_number_float() && std::abs(value->get<double>()) < 1e15 &&
      std::trunc(value->get<double>()) == value->get<double>()) {
    // Some exporters write 4096.0.
    result = static_cast<int64_t>(value->get<double>());
  } else {
    fail_at(
        key,
        fmt::format("must be a whole number, is {}", value->type_name()));
  }
  if (result < min || result > max) {
    fail_at(key, fmt::format("is {}, allowed {} to {}", result, min, max));
  }
  return result;
}

double JsonView::number(std::string_view key) const {
  const Json* value = find(key);
  if (!value) {
    fail_at(key, "is missing");
  }
  if (!value->is_number()) {
    fail_at(key, fmt::format("must be a number, is {}", value->type_name()));
  }
  return value->get<double>();
}

bool JsonView::boolean(std::string_view key) const {
  const Json* value = find(key);
  if (!value) {
    fail_at(key, "is missing");
  }
  if (!value->is_boolean()) {
    fail_at(
        key,
        fmt::format("must be true or false, is {}", value->type_name()));
  }
  return value->get<bool>();
}

std::string JsonView::string(std::string_view key) const {
  const Json* value = find(key);
  if (!value) {
    fail_at(key, "is missing");
  }
  if (!value->is_string()) {
    fail_at(key, fmt::format("must be a string, is {}", value->type_name()));
  }
  return value->get<std::string>();
}

JsonView JsonView::object(std::string_view key) const {
  const Json* value = find(key);
  if (!value) {
    fail_at(key, "is missing");
  }
  return JsonView(*value, fmt::format("{}: {}", place_, key));
}

int64_t JsonView::integer_or(
    std::string_view key,
    int64_t fallback,
    int64_t min,
    int64_t max) const {
  return find(key) ? integer(key, min, max) : fallback;
}

double JsonView::number_or(std::string_view key, double fallback) const {
  return find(key) ? number(key) : fallback;
}

bool JsonView::boolean_or(std::string_view key, bool fallback) const {
  return find(key) ? boolean(key) : fallback;
}

std::string JsonView::string_or(std::string_view key, std::string_view fallback)
    const {
  return find(key) ? string(key) : std::string(fallback);
}

std::vector<std::string> JsonView::strings_or_empty(
    std::string_view key) const {
  std::vector<std::string> out;
  if (const Json* value = find(key)) {
    if (!value->is_array()) {
      fail_at(key, "must be a list of strings");
    }
    for (const Json& item : *value) {
      if (!item.is_string()) {
        fail_at(key, "must be a list of strings");
      }
      out.push_back(item.get<std::string>());
    }
  }
  return out;
}

std::vector<double> JsonView::numbers_or_empty(std::string_view key) const {
  std::vector<double> out;
  if (const Json* value = find(key)) {
    if (!value->is_array()) {
      fail_at(key, "must be a list of numbers");
    }
    for (const Json& item : *value) {
      if (!item.is_number()) {
        fail_at(key, "must be a list of numbers");
      }
      out.push_back(item.get<double>());
    }
  }
  return out;
}

}  // namespace mlxx
