#pragma once

#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <string>

#include <fmt/format.h>

namespace mlxx {

// A safetensors file with the given header text, right or wrong, and data.
inline std::string safetensors_text(
    const std::string& header,
    const std::string& data) {
  uint64_t length = header.size();
  std::string out(8, '\0');
  std::memcpy(out.data(), &length, sizeof(length));
  return out + header + data;
}

// A header of the given entries.
inline std::string safetensors_header(
    std::initializer_list<std::string> entries) {
  return fmt::format("{{{}}}", fmt::join(entries, ","));
}

// A header entry without braces around the whole.
inline std::string safetensors_entry(
    const std::string& name,
    const std::string& dtype,
    const std::string& shape,
    uint64_t begin,
    uint64_t end) {
  return fmt::format(
      R"("{}":{{"dtype":"{}","shape":{},"data_offsets":[{},{}]}})",
      name,
      dtype,
      shape,
      begin,
      end);
}

}  // namespace mlxx
