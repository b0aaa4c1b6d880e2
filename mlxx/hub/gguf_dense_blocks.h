#pragma once

// Blocks of 256 numbers whose groups of 16 no form of MLX has: written out in
// float32, which holds every product exactly and rounds a sum once.
#include <cstdint>

#include "mlxx/hub/gguf_k_blocks.h"

namespace mlxx::hub {

// d scale q - dmin minimum, q of two bits, scale and minimum of four.
struct BlockQ2K {
  static constexpr int kBytes = 84;
  static void dequantize(const uint8_t* block, float* out) {
    float d = read_number(block + 80), dmin = read_number(block + 82);
    for (int i = 0; i < kSuperBlock; ++i) {
      int half = i / 128, plane = i / 32 % 4, at = i % 32;
      int q = block[16 + half * 32 + at] >> 2 * plane & 3;
      uint8_t both = block[i / 16];
      float scale = d * static_cast<float>(both & 15);
      float minimum = dmin * static_cast<float>(both >> 4);
      out[i] = scale * static_cast<float>(q) - minimum;
    }
  }
};

// d scale (q - 32), q of six bits, scale a signed byte: 11 + 8 + 6 bits less
// the signs, 24 at most.
struct BlockQ6K {
  static constexpr int kBytes = 210;
  static void dequantize(const uint8_t* block, float* out) {
    float d = read_number(block + 208);
    for (int i = 0; i < kSuperBlock; ++i) {
      // Halves of 128 are four planes of 32: the low nibbles of 64 bytes, then
      // the high ones; their upper two bits are a plane of 32 bytes.
      int half = i / 128, plane = i / 32 % 4, at = i % 32;
      int low = block[half * 64 + plane % 2 * 32 + at] >> plane / 2 * 4 & 15;
      int high = block[128 + half * 32 + at] >> 2 * plane & 3;
      auto scale = static_cast<int8_t>(block[192 + i / 16]);
      int product = scale * ((high << 4 | low) - 32);
      out[i] = d * static_cast<float>(product);
    }
  }
};

}  // namespace mlxx::hub
