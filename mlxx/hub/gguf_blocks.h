#pragma once

// Blocks of 32 numbers as GGUF stores them, each with the numbers in MLX's
// packing.
#include <cstdint>
#include <cstring>

namespace mlxx::hub {

inline uint16_t read_half(const uint8_t* bytes) {
  uint16_t value;
  std::memcpy(&value, bytes, sizeof(value));
  return value;
}

// The low nibbles of eight bytes, the first lowest.
inline uint32_t squeeze_nibbles(uint64_t x) {
  x = (x | x >> 4) & 0x00ff00ff00ff00ff;
  x = (x | x >> 8) & 0x0000ffff0000ffff;
  return static_cast<uint32_t>(x | x >> 16);
}

// GGUF keeps element j of a block in the low half of byte j and element
// j + 16 in the high half; MLX keeps element i at bit 4 i.
inline void repack_nibbles(const uint8_t* q, uint32_t* out) {
  constexpr uint64_t kLow = 0x0f0f0f0f0f0f0f0f;
  uint64_t a, b;
  std::memcpy(&a, q, sizeof(a));
  std::memcpy(&b, q + 8, sizeof(b));
  out[0] = squeeze_nibbles(a & kLow);
  out[1] = squeeze_nibbles(b & kLow);
  out[2] = squeeze_nibbles(a >> 4 & kLow);
  out[3] = squeeze_nibbles(b >> 4 & kLow);
}

// Signed bytes to q + 128.
inline void repack_bytes(const uint8_t* q, uint32_t* out) {
  uint64_t part[4];
  std::memcpy(part, q, sizeof(part));
  for (auto& p : part) {
    p ^= 0x8080808080808080;
  }
  std::memcpy(out, part, sizeof(part));
}

struct BlockQ4_0 {
  static constexpr int kBytes = 18;
  static constexpr int kWords = 4;
  static constexpr float kZero = -8.0f;  // times the scale is the bias
  static void pack(const uint8_t* block, uint32_t* out) {
    repack_nibbles(block + 2, out);
  }
};

// Its bias follows the scale.
struct BlockQ4_1 {
  static constexpr int kBytes = 20;
  static constexpr int kWords = 4;
  static constexpr float kZero = 0;
  static void pack(const uint8_t* block, uint32_t* out) {
    repack_nibbles(block + 4, out);
  }
};

struct BlockQ8_0 {
  static constexpr int kBytes = 34;
  static constexpr int kWords = 8;
  static constexpr float kZero = -128.0f;
  static void pack(const uint8_t* block, uint32_t* out) {
    repack_bytes(block + 2, out);
  }
};

}  // namespace mlxx::hub
