#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "mlxx/core/safetensors.h"

namespace mlxx {

// The reference reader's limit for the JSON.
inline constexpr uint64_t kMaxSafetensorsHeader = 100'000'000;

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;  // offsets from the data's start
  SafetensorsMetadata metadata;
};

// Bits of one element; absent for a name that the format does not have.
std::optional<int> safetensors_bits(std::string_view dtype);

// `text` is the JSON after the length field, `data_bytes` what follows it.
// Errors as SafetensorsFile; `place` is the file's name.
SafetensorsHeader parse_safetensors_header(
    std::string_view text,
    uint64_t data_bytes,
    const std::string& place);

}  // namespace mlxx
