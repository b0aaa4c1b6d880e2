#pragma once

#include <cstdint>
#include <string_view>

namespace mlxx::hub {

// How GGUF stores the numbers of a tensor: in blocks of `block` elements,
// each of `bytes` bytes, along the row.
struct GgufType {
  uint32_t id;
  std::string_view name;
  uint32_t block;
  uint32_t bytes;
};

enum GgufTypeId : uint32_t {
  kGgufF32 = 0,
  kGgufF16 = 1,
  kGgufQ4_0 = 2,
  kGgufQ4_1 = 3,
  kGgufQ5_0 = 6,
  kGgufQ5_1 = 7,
  kGgufQ8_0 = 8,
  kGgufQ2K = 10,
  kGgufQ3K = 11,
  kGgufQ4K = 12,
  kGgufQ5K = 13,
  kGgufQ6K = 14,
  kGgufIq4Nl = 20,
  kGgufIq4Xs = 23,
  kGgufBF16 = 30,
  kGgufMxfp4 = 39,
};

// Every type that has a size, computable here or not; nullptr for an id that
// no released file uses.
const GgufType* find_gguf_type(uint32_t id);

}  // namespace mlxx::hub
