#pragma once

// Blocks of 256 numbers as GGUF stores them whose groups are no smaller than
// MLX's, or whose values are few enough for another exact form. The interface
// is that of gguf_blocks.h. Their scales are products of a float16 and a small
// integer: exact in float32, not in a half-precision type.
// Formats: https://github.com/ggml-org/ggml/blob/master/src/ggml-common.h
#include <cstdint>

#include "mlxx/hub/gguf_blocks.h"

namespace mlxx::hub {

inline constexpr int kSuperBlock = 256;

// Scale and minimum `j` of eight, six bits each in twelve bytes: the first
// four in the low bits of bytes 0 to 7; the others' low four bits in bytes 8
// to 11, their high two above the first four.
inline void k_scale_and_min(
    const uint8_t* packed,
    int j,
    uint8_t* scale,
    uint8_t* minimum) {
  if (j < 4) {
    *scale = packed[j] & 63;
    *minimum = packed[j + 4] & 63;
    return;
  }
  *scale =
      static_cast<uint8_t>((packed[j + 4] & 15) | (packed[j - 4] >> 6) << 4);
  *minimum = static_cast<uint8_t>((packed[j + 4] >> 4) | (packed[j] >> 6) << 4);
}

// d scale q - dmin minimum, both halves of 2, then twelve bytes of scales.
inline void k_numbers(const uint8_t* block, float* scales, float* biases) {
  float d = read_number(block), dmin = read_number(block + 2);
  for (int j = 0; j < 8; ++j) {
    uint8_t scale, minimum;
    k_scale_and_min(block + 4, j, &scale, &minimum);
    scales[j] = d * scale;
    biases[j] = -(dmin * minimum);
  }
}

struct BlockQ4K {
  static constexpr int kBytes = 144;
  static constexpr int kElements = kSuperBlock;
  static constexpr int kBits = 4;
  static constexpr int kGroup = 32;
  // Of each 32 bytes the low nibbles are one group, the high ones the next.
  static void pack(const uint8_t* block, uint32_t* out) {
    const uint8_t* nibbles = block + 16;
    for (int pair = 0; pair < 4; ++pair, nibbles += 32, out += 8) {
      uint8_t low[32], high[32];
      for (int i = 0; i < 32; ++i) {
        low[i] = nibbles[i] & 15;
        high[i] = nibbles[i] >> 4;
      }
      pack_bits<4>(low, out);
      pack_bits<4>(high, out + 4);
    }
  }
  static void numbers(const uint8_t* block, float* scales, float* biases) {
    k_numbers(block, scales, biases);
  }
};

struct BlockQ5K {
  static constexpr int kBytes = 176;
  static constexpr int kElements = kSuperBlock;
  static constexpr int kBits = 5;
  static constexpr int kGroup = 32;
  // The fifth bit of element i of group g is bit g of byte i.
  static void pack(const uint8_t* block, uint32_t* out) {
    const uint8_t* fifth = block + 16;
    const uint8_t* nibbles = block + 48;
    for (int group = 0; group < 8; ++group, out += 5) {
      uint8_t q[32];
      for (int i = 0; i < 32; ++i) {
        int low = nibbles[group / 2 * 32 + i] >> group % 2 * 4 & 15;
        q[i] = static_cast<uint8_t>(low | (fifth[i] >> group & 1) << 4);
      }
      pack_bits<5>(q, out);
    }
  }
  static void numbers(const uint8_t* block, float* scales, float* biases) {
    k_numbers(block, scales, biases);
  }
};

// d (scale - 32) (q - 4) with q of three bits and sixteen scales of six: the
// product of the two is an integer from -124 to 128, so that the negative of
// it is a byte less 128 and -d the scale of all.
struct BlockQ3K {
  static constexpr int kBytes = 110;
  static constexpr int kElements = kSuperBlock;
  static constexpr int kBits = 8;
  static constexpr int kGroup = 128;

  static void pack(const uint8_t* block, uint32_t* out) {
    int scales[16];
    read_scales(block + 96, scales);
    uint8_t q[kSuperBlock];
    for (int i = 0; i < kSuperBlock; ++i) {
      int half = i / 128, plane = i / 32 % 4, at = i % 32;
      int low = block[32 + half * 32 + at] >> 2 * plane & 3;
      int high = block[at] >> (4 * half + plane) & 1;
      int value = (high << 2 | low) - 4;
      q[i] = static_cast<uint8_t>(128 - scales[i / 16] * value);
    }
    std::memcpy(out, q, sizeof(q));
  }
  static void numbers(const uint8_t* block, float* scales, float* biases) {
    float d = read_number(block + 108);
    for (int group = 0; group < 2; ++group) {
      scales[group] = -d;
      biases[group] = 128 * d;
    }
  }

 private:
  // The low four bits of scale j are nibble j / 8 of byte j % 8, the high two
  // bits 2 (j / 4) of byte 8 + j % 4.
  static void read_scales(const uint8_t* packed, int* scales) {
    for (int j = 0; j < 16; ++j) {
      int low = packed[j % 8] >> 4 * (j / 8) & 15;
      int high = packed[8 + j % 4] >> 2 * (j / 4) & 3;
      scales[j] = (high << 4 | low) - 32;
    }
  }
};

// d (scale - 32) v with v of the table of the IQ4 types.
struct BlockIq4Xs {
  static constexpr int kBytes = 136;
  static constexpr int kElements = kSuperBlock;
  static constexpr int kBits = 8;
  static constexpr int kGroup = 32;
  static void pack(const uint8_t* block, uint32_t* out) {
    for (int group = 0; group < 8; ++group) {
      repack_iq4(block + 8 + 16 * group, out + 8 * group);
    }
  }
  static void numbers(const uint8_t* block, float* scales, float* biases) {
    float d = read_number(block);
    uint16_t high = read_half(block + 2);
    for (int group = 0; group < 8; ++group) {
      int low = block[4 + group / 2] >> 4 * (group % 2) & 15;
      int scale = ((high >> 2 * group & 3) << 4 | low) - 32;
      scales[group] = d * static_cast<float>(scale);
      biases[group] = -128 * scales[group];
    }
  }
};

}  // namespace mlxx::hub
