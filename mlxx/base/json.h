#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace mlxx {

using Json = nlohmann::json;
using OrderedJson = nlohmann::ordered_json;

struct JsonLimits {
  int max_depth = 64;  // nested arrays and objects
  size_t max_bytes = size_t{64} << 20;
  bool allow_duplicate_keys = false;
};

// Strict UTF-8 JSON (a BOM at the start is accepted). Errors are of `kind`
// and name `place`: too deep, too long, duplicate key, syntax with position.
Json parse_json(
    std::string_view text,
    std::string_view place,
    const JsonLimits& limits = {});

// As parse_json, keeping the order of keys (requests, tools, templates).
OrderedJson parse_ordered_json(
    std::string_view text,
    std::string_view place,
    const JsonLimits& limits = {});

// Typed reading of one JSON object whose content is not trusted. Each getter
// names the file and the key in its error (ErrorKind::bad_file). An explicit
// null counts as absent. Holds a reference: the object must outlive the view.
class JsonView {
 public:
  // `place` is what errors name, such as "config.json".
  JsonView(const Json& object, std::string place);

  bool has(std::string_view key) const;

  // Required values.
  int64_t integer(std::string_view key, int64_t min, int64_t max) const;
  double number(std::string_view key) const;  // finite
  bool boolean(std::string_view key) const;
  std::string string(std::string_view key) const;
  JsonView object(std::string_view key) const;

  // Values with a default.
  int64_t integer_or(
      std::string_view key,
      int64_t fallback,
      int64_t min,
      int64_t max) const;
  double number_or(std::string_view key, double fallback) const;
  bool boolean_or(std::string_view key, bool fallback) const;
  std::string string_or(std::string_view key, std::string_view fallback) const;
  std::vector<std::string> strings_or_empty(std::string_view key) const;
  std::vector<double> numbers_or_empty(std::string_view key) const;

  const Json& json() const {
    return *object_;
  }
  const std::string& place() const {
    return place_;
  }

  [[noreturn]] void fail_at(std::string_view key, std::string_view what) const;

 private:
  const Json* find(std::string_view key) const;

  const Json* object_;
  std::string place_;
};

}  // namespace mlxx
