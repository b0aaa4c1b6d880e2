#pragma once

#include <vector>

#include "mlxx/core/mlx.h"

namespace mlxx::embed {

// What one text, or one pair of texts, is to an encoder.
struct EncoderInput {
  std::vector<int32_t> ids;    // [L]
  std::vector<int32_t> types;  // [L]: which text of a pair
};

// The tokens of several inputs one after the other, T in all, without padding:
// nothing of one input can reach the result of another, and none is computed
// for nothing.
class TokenRows {
 public:
  // None of the inputs may be empty.
  explicit TokenRows(std::vector<EncoderInput> inputs);

  int inputs() const {
    return static_cast<int>(lengths_.size());
  }
  int tokens() const {
    return static_cast<int>(positions_.size());
  }
  const std::vector<int>& lengths() const {
    return lengths_;
  }
  // Row of the first token of each input, and T at the end.
  const std::vector<int>& starts() const {
    return starts_;
  }
  // Of each row in its input.
  const std::vector<int32_t>& positions() const {
    return positions_;
  }

  mx::array ids() const;    // [T] int32
  mx::array types() const;  // [T] int32
  // [T] int32; the first token of an input has the position `first`.
  mx::array position_ids(int first = 0) const;

 private:
  std::vector<int32_t> ids_;
  std::vector<int32_t> types_;
  std::vector<int32_t> positions_;
  std::vector<int> lengths_;
  std::vector<int> starts_;
};

}  // namespace mlxx::embed
