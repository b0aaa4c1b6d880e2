#pragma once

#include "mlxx/core/mlx.h"
#include "mlxx/data/batch.h"

namespace mlxx::train {

// Which token of a batch is scored by which hidden state: the one of the token
// before it in its text. Gradients add up in a fixed order, without atomics.
class TargetRows {
 public:
  // invalid_request for sizes that do not fit, a target without a token before
  // it, and a target or a segment outside of the batch.
  explicit TargetRows(const data::Batch& batch);

  int count() const {
    return count_;
  }
  // [count] int32: the tokens.
  const mx::array& tokens() const {
    return tokens_;
  }
  // h [rows, length, E] -> [count, E]: the states that score them.
  mx::array states(const mx::array& h) const;
  // [count] -> [rows, length], 0 where there is no target.
  mx::array placed(const mx::array& scores) const;

 private:
  int rows_ = 0;
  int length_ = 0;
  int count_ = 0;
  mx::array tokens_;
  mx::array sources_;  // [count] int32: rows of the hidden states
  mx::array places_;   // [count] int32: of the targets
  // [rows * length] int32 each: which of the targets a hidden state scores
  // first, second, ...; `count` for none.
  std::vector<mx::array> uses_;
  mx::array target_at_;  // [rows * length]: the target there, or `count`
};

}  // namespace mlxx::train
