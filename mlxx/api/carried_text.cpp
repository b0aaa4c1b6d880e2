#include "mlxx/api/carried_text.h"

#include <array>
#include <cstdint>

#include "mlxx/base/utf8.h"

namespace mlxx::api {

namespace {

constexpr std::string_view kMark = "mlxx1:";
constexpr std::string_view kDigits =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

constexpr std::array<int8_t, 256> kValues = [] {
  std::array<int8_t, 256> values{};
  values.fill(-1);
  for (size_t i = 0; i < kDigits.size(); ++i) {
    values[static_cast<uint8_t>(kDigits[i])] = static_cast<int8_t>(i);
  }
  return values;
}();

}  // namespace

std::string base64_of(std::string_view bytes) {
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    std::string_view group = bytes.substr(i, 3);
    uint32_t bits = 0;
    for (size_t j = 0; j < 3; ++j) {
      bits =
          bits << 8 | (j < group.size() ? static_cast<uint8_t>(group[j]) : 0);
    }
    for (size_t j = 0; j < 4; ++j) {
      out += j <= group.size() ? kDigits[bits >> (18 - 6 * j) & 63] : '=';
    }
  }
  return out;
}

std::optional<std::string> bytes_of_base64(std::string_view text) {
  if (text.size() % 4 != 0) {
    return std::nullopt;
  }
  std::string out;
  out.reserve(text.size() / 4 * 3);
  for (size_t i = 0; i < text.size(); i += 4) {
    const bool is_last = i + 4 == text.size();
    size_t digits = 4;
    if (is_last && text[i + 3] == '=') {
      digits = text[i + 2] == '=' ? 2 : 3;
    }
    uint32_t bits = 0;
    for (size_t j = 0; j < 4; ++j) {
      int value = j < digits ? kValues[static_cast<uint8_t>(text[i + j])] : 0;
      if (value < 0) {
        return std::nullopt;
      }
      bits = bits << 6 | static_cast<uint32_t>(value);
    }
    for (size_t j = 0; j < 3; ++j) {
      auto byte = static_cast<uint8_t>(bits >> (16 - 8 * j));
      if (j < digits - 1) {
        out += static_cast<char>(byte);
      } else if (byte != 0) {
        return std::nullopt;  // bits that base64_of() would not have set
      }
    }
  }
  return out;
}

std::string carry_text(std::string_view text) {
  return std::string(kMark) + base64_of(text);
}

std::optional<std::string> carried_text(std::string_view carried) {
  if (!carried.starts_with(kMark)) {
    return std::nullopt;
  }
  auto text = bytes_of_base64(carried.substr(kMark.size()));
  return text && is_valid_utf8(*text) ? text : std::nullopt;
}

}  // namespace mlxx::api
