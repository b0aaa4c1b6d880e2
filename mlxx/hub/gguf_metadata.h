#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace mlxx::hub {

enum class GgufValueType : uint32_t {
  uint8 = 0,
  int8 = 1,
  uint16 = 2,
  int16 = 3,
  uint32 = 4,
  int32 = 5,
  float32 = 6,
  boolean = 7,
  string = 8,
  array = 9,
  uint64 = 10,
  int64 = 11,
  float64 = 12,
};

// One value, still as the file has it; its length was checked.
struct GgufValue {
  GgufValueType type;
  // The bytes of a scalar or string; of an array all elements, strings with
  // their lengths before them.
  std::span<const std::byte> bytes;
  GgufValueType element{};  // of an array
  uint64_t count = 0;       // elements of an array
};

// The key-value part of a GGUF file. Views into the mapped file: valid while
// it is. Every getter names file and key in its error (bad_file).
class GgufMetadata {
 public:
  explicit GgufMetadata(std::string place) : place_(std::move(place)) {}

  // False if the key is there already.
  bool add(std::string_view key, const GgufValue& value);

  bool has(std::string_view key) const {
    return values_.contains(key);
  }
  const GgufValue* find(std::string_view key) const;
  const std::map<std::string_view, GgufValue>& values() const {
    return values_;
  }
  const std::string& place() const {
    return place_;
  }

  // Required values. Whole numbers of any width and sign are read as one.
  int64_t integer(std::string_view key, int64_t min, int64_t max) const;
  double number(std::string_view key) const;       // finite
  std::string string(std::string_view key) const;  // valid UTF-8

  // Absent where the key is; wrong types are errors.
  std::optional<int64_t>
  integer_if(std::string_view key, int64_t min, int64_t max) const;
  std::optional<double> number_if(std::string_view key) const;
  std::optional<bool> boolean_if(std::string_view key) const;
  std::optional<std::string> string_if(std::string_view key) const;

  // Lists; empty where the key is absent.
  std::vector<std::string_view> strings(std::string_view key) const;
  std::vector<int64_t> integers(std::string_view key) const;
  std::vector<float> floats(std::string_view key) const;

  [[noreturn]] void fail_at(std::string_view key, std::string_view what) const;

 private:
  const GgufValue& require(std::string_view key) const;
  const GgufValue* list(std::string_view key, const char* wanted) const;

  std::string place_;
  std::map<std::string_view, GgufValue> values_;
};

// Bytes of a scalar; 0 for strings, arrays and unknown types.
size_t gguf_scalar_bytes(GgufValueType type);

}  // namespace mlxx::hub
