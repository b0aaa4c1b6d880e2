#include "mlxx/hub/gguf_metadata.h"

#include <cmath>
#include <cstring>

#include "mlxx/base/error.h"
#include "mlxx/base/utf8.h"

namespace mlxx::hub {

namespace {

template <typename T>
T read(const std::byte* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof(T));
  return value;
}

// Absent if the type is no whole number or the value exceeds int64.
std::optional<int64_t> read_integer(
    GgufValueType type,
    const std::byte* bytes) {
  switch (type) {
    case GgufValueType::uint8:
      return read<uint8_t>(bytes);
    case GgufValueType::int8:
      return read<int8_t>(bytes);
    case GgufValueType::uint16:
      return read<uint16_t>(bytes);
    case GgufValueType::int16:
      return read<int16_t>(bytes);
    case GgufValueType::uint32:
      return read<uint32_t>(bytes);
    case GgufValueType::int32:
      return read<int32_t>(bytes);
    case GgufValueType::int64:
      return read<int64_t>(bytes);
    case GgufValueType::uint64: {
      auto value = read<uint64_t>(bytes);
      if (value <= static_cast<uint64_t>(INT64_MAX)) {
        return static_cast<int64_t>(value);
      }
      return std::nullopt;
    }
    default:
      return std::nullopt;
  }
}

std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

size_t gguf_scalar_bytes(GgufValueType type) {
  switch (type) {
    case GgufValueType::uint8:
    case GgufValueType::int8:
    case GgufValueType::boolean:
      return 1;
    case GgufValueType::uint16:
    case GgufValueType::int16:
      return 2;
    case GgufValueType::uint32:
    case GgufValueType::int32:
    case GgufValueType::float32:
      return 4;
    case GgufValueType::uint64:
    case GgufValueType::int64:
    case GgufValueType::float64:
      return 8;
    default:
      return 0;
  }
}

bool GgufMetadata::add(std::string_view key, const GgufValue& value) {
  return values_.emplace(key, value).second;
}

const GgufValue* GgufMetadata::find(std::string_view key) const {
  auto it = values_.find(key);
  return it == values_.end() ? nullptr : &it->second;
}

void GgufMetadata::fail_at(std::string_view key, std::string_view what) const {
  fail(ErrorKind::bad_file, place_, "'{}' {}", key, what);
}

const GgufValue& GgufMetadata::require(std::string_view key) const {
  const GgufValue* value = find(key);
  if (!value) {
    fail_at(key, "is missing");
  }
  return *value;
}

int64_t GgufMetadata::integer(std::string_view key, int64_t min, int64_t max)
    const {
  const GgufValue& value = require(key);
  if (gguf_scalar_bytes(value.type) == 0) {
    fail_at(key, "must be a whole number");
  }
  auto result = read_integer(value.type, value.bytes.data());
  if (!result) {
    fail_at(key, "must be a whole number");
  }
  if (*result < min || *result > max) {
    fail_at(key, fmt::format("is {}, allowed {} to {}", *result, min, max));
  }
  return *result;
}

double GgufMetadata::number(std::string_view key) const {
  const GgufValue& value = require(key);
  double result = 0;
  if (value.type == GgufValueType::float32) {
    result = read<float>(value.bytes.data());
  } else if (value.type == GgufValueType::float64) {
    result = read<double>(value.bytes.data());
  } else if (
      auto whole = gguf_scalar_bytes(value.type) > 0
          ? read_integer(value.type, value.bytes.data())
          : std::nullopt) {
    result = static_cast<double>(*whole);
  } else {
    fail_at(key, "must be a number");
  }
  if (!std::isfinite(result)) {
    fail_at(key, "is not finite");
  }
  return result;
}

std::string GgufMetadata::string(std::string_view key) const {
  const GgufValue& value = require(key);
  if (value.type != GgufValueType::string) {
    fail_at(key, "must be a string");
  }
  std::string_view text = as_text(value.bytes);
  if (!is_valid_utf8(text)) {
    fail_at(key, "is not valid UTF-8");
  }
  return std::string(text);
}

std::optional<int64_t>
GgufMetadata::integer_if(std::string_view key, int64_t min, int64_t max) const {
  return has(key) ? std::optional(integer(key, min, max)) : std::nullopt;
}

std::optional<double> GgufMetadata::number_if(std::string_view key) const {
  return has(key) ? std::optional(number(key)) : std::nullopt;
}

std::optional<bool> GgufMetadata::boolean_if(std::string_view key) const {
  const GgufValue* value = find(key);
  if (!value) {
    return std::nullopt;
  }
  if (value->type != GgufValueType::boolean) {
    fail_at(key, "must be true or false");
  }
  auto byte = read<uint8_t>(value->bytes.data());
  if (byte > 1) {
    fail_at(key, fmt::format("must be 0 or 1, is {}", byte));
  }
  return byte == 1;
}

std::optional<std::string> GgufMetadata::string_if(std::string_view key) const {
  return has(key) ? std::optional(string(key)) : std::nullopt;
}

const GgufValue* GgufMetadata::list(std::string_view key, const char* wanted)
    const {
  const GgufValue* value = find(key);
  if (value && value->type != GgufValueType::array) {
    fail_at(key, fmt::format("must be a list of {}", wanted));
  }
  return value;
}

std::vector<std::string_view> GgufMetadata::strings(
    std::string_view key) const {
  std::vector<std::string_view> out;
  const GgufValue* value = list(key, "strings");
  if (!value) {
    return out;
  }
  if (value->element != GgufValueType::string) {
    fail_at(key, "must be a list of strings");
  }
  out.reserve(value->count);
  const std::byte* at = value->bytes.data();
  for (uint64_t i = 0; i < value->count; ++i) {
    auto length = read<uint64_t>(at);
    at += sizeof(uint64_t);
    out.emplace_back(reinterpret_cast<const char*>(at), length);
    at += length;
  }
  return out;
}

std::vector<int64_t> GgufMetadata::integers(std::string_view key) const {
  std::vector<int64_t> out;
  const GgufValue* value = list(key, "whole numbers");
  if (!value) {
    return out;
  }
  size_t size = gguf_scalar_bytes(value->element);
  out.reserve(size == 0 ? 0 : value->count);
  for (uint64_t i = 0; i < value->count; ++i) {
    auto item = size == 0
        ? std::nullopt
        : read_integer(value->element, value->bytes.data() + i * size);
    if (!item) {
      fail_at(key, "must be a list of whole numbers");
    }
    out.push_back(*item);
  }
  return out;
}

std::vector<float> GgufMetadata::floats(std::string_view key) const {
  const GgufValue* value = list(key, "numbers");
  if (!value) {
    return {};
  }
  if (value->element != GgufValueType::float32) {
    fail_at(key, "must be a list of float32");
  }
  std::vector<float> out(value->count);
  if (value->count > 0) {
    std::memcpy(out.data(), value->bytes.data(), value->bytes.size());
  }
  return out;
}

}  // namespace mlxx::hub
