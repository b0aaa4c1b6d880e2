#pragma once

// Blocks of 32 numbers as GGUF stores them, each in MLX's form: an affine
// group of 32, w = q * scale + bias, with exactly the same values. A block
// type has
//   kBytes, kElements     of the block in the file
//   kBits, kGroup         of MLX's form
//   pack(block, words)    kElements * kBits / 32 words
//   numbers(block, scales, biases)   one of each per group, exact in float32
#include <bit>
#include <cstdint>
#include <cstring>

namespace mlxx::hub {

inline uint16_t read_half(const uint8_t* bytes) {
  uint16_t value;
  std::memcpy(&value, bytes, sizeof(value));
  return value;
}

// IEEE half to single without a branch for the usual numbers: the exponent is
// rebased by a multiplication, which also handles subnormals.
inline float half_to_float(uint16_t half) {
  uint32_t magnitude = static_cast<uint32_t>(half & 0x7fff) << 13;
  float value = std::bit_cast<float>(magnitude) * 0x1p112f;
  uint32_t bits = std::bit_cast<uint32_t>(value);
  if (magnitude >= 0x0f800000) {  // infinity or NaN
    bits |= 0x7f800000;
  }
  bits |= static_cast<uint32_t>(half & 0x8000) << 16;
  return std::bit_cast<float>(bits);
}

inline float read_number(const uint8_t* bytes) {
  return half_to_float(read_half(bytes));
}

// MLX's packing of any width: element i of 32 is bits [i * width, (i + 1) *
// width) of a stream whose lowest bit comes first.
template <int width>
inline void pack_bits(const uint8_t* q, uint32_t* out) {
  uint64_t stream = 0;
  int filled = 0;
  for (int i = 0; i < 32; ++i) {
    stream |= static_cast<uint64_t>(q[i]) << filled;
    filled += width;
    if (filled >= 32) {
      *out++ = static_cast<uint32_t>(stream);
      stream >>= 32;
      filled -= 32;
    }
  }
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

// The same order, one byte each.
inline void spread_nibbles(const uint8_t* q, uint8_t* out) {
  for (int j = 0; j < 16; ++j) {
    out[j] = q[j] & 15;
    out[j + 16] = q[j] >> 4;
  }
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

// Of kZero times the scale is the bias.
template <int bytes, int bits, int zero>
struct SymmetricBlock {
  static constexpr int kBytes = bytes;
  static constexpr int kElements = 32;
  static constexpr int kBits = bits;
  static constexpr int kGroup = 32;
  static constexpr int kZero = zero;
  static void numbers(const uint8_t* block, float* scales, float* biases) {
    scales[0] = read_number(block);
    biases[0] = kZero * scales[0];
  }
};

// A scale, then a bias.
template <int bytes, int bits>
struct AffineBlock {
  static constexpr int kBytes = bytes;
  static constexpr int kElements = 32;
  static constexpr int kBits = bits;
  static constexpr int kGroup = 32;
  static constexpr int kZero = 0;
  static void numbers(const uint8_t* block, float* scales, float* biases) {
    scales[0] = read_number(block);
    biases[0] = read_number(block + 2);
  }
};

// d (q - 8)
struct BlockQ4_0 : SymmetricBlock<18, 4, -8> {
  static void pack(const uint8_t* block, uint32_t* out) {
    repack_nibbles(block + 2, out);
  }
};

// d q + m
struct BlockQ4_1 : AffineBlock<20, 4> {
  static void pack(const uint8_t* block, uint32_t* out) {
    repack_nibbles(block + 4, out);
  }
};

// The fifth bits of all 32 stand before the nibbles.
inline void repack_fifth_bits(const uint8_t* high, uint32_t* out) {
  uint32_t fifth;
  std::memcpy(&fifth, high, sizeof(fifth));
  uint8_t q[32];
  spread_nibbles(high + 4, q);
  for (int i = 0; i < 32; ++i) {
    q[i] = static_cast<uint8_t>(q[i] | (fifth >> i & 1) << 4);
  }
  pack_bits<5>(q, out);
}

// d (q - 16)
struct BlockQ5_0 : SymmetricBlock<22, 5, -16> {
  static void pack(const uint8_t* block, uint32_t* out) {
    repack_fifth_bits(block + 2, out);
  }
};

// d q + m
struct BlockQ5_1 : AffineBlock<24, 5> {
  static void pack(const uint8_t* block, uint32_t* out) {
    repack_fifth_bits(block + 4, out);
  }
};

// d q of signed bytes
struct BlockQ8_0 : SymmetricBlock<34, 8, -128> {
  static void pack(const uint8_t* block, uint32_t* out) {
    repack_bytes(block + 2, out);
  }
};

// The sixteen values that a nibble of the IQ4 types stands for, plus 128.
constexpr uint8_t kIq4Values[16] =
    {1, 24, 45, 63, 79, 93, 106, 118, 129, 141, 153, 166, 181, 197, 217, 241};

inline void repack_iq4(const uint8_t* nibbles, uint32_t* out) {
  uint8_t q[32];
  spread_nibbles(nibbles, q);
  for (auto& value : q) {
    value = kIq4Values[value];
  }
  std::memcpy(out, q, sizeof(q));
}

// d v, v a signed byte of the table: eight bits hold it exactly.
struct BlockIq4Nl : SymmetricBlock<18, 8, -128> {
  static void pack(const uint8_t* block, uint32_t* out) {
    repack_iq4(block + 2, out);
  }
};

}  // namespace mlxx::hub
