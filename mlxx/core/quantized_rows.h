#pragma once

#include <cstdint>

namespace mlxx {

// A matrix [rows, columns] of affine groups of 32, w = q * scale + bias, that
// a file holds in a form of its own. A kernel takes it row by row into the
// form that becomes resident, without MLX's form of the whole in between.
class QuantizedRows {
 public:
  static constexpr int kGroup = 32;

  struct Form {
    int64_t rows;
    int64_t columns;  // a multiple of 32
    int bits;         // 4 or 8
    // Every bias is -2^(bits - 1) times the scale; read() gives none.
    bool symmetric;
  };

  virtual ~QuantizedRows() = default;
  virtual const Form& form() const = 0;

  // Rows [first, first + count) in MLX's packing: words [count][columns * bits
  // / 32], scales and biases [count][columns / 32] as float16, exactly. False,
  // with the rest undefined, if one of them is no finite float16. Any number
  // of threads may call it.
  virtual bool read(
      int64_t first,
      int64_t count,
      uint32_t* words,
      uint16_t* scales,
      uint16_t* biases) const = 0;
};

}  // namespace mlxx
