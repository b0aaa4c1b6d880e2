#pragma once

#include "mlxx/embed/token_rows.h"
#include "mlxx/nn/rope.h"

namespace mlxx::embed {

// Rotary positions of the rows of one batch, the same for all layers that
// share a rope. Angles are in double precision.
class RowRotation {
 public:
  // unsupported for a rope whose angles depend on the length.
  RowRotation(const nn::Rope& rope, const TokenRows& rows);
  // x [T, H, D] -> [T, H, D]; rotates the first numbers of each head.
  mx::array operator()(const mx::array& x) const;

 private:
  nn::Rotations rotations_;
  mx::array cosines_;  // [T, 1, dims / 2] float32
  mx::array sines_;
};

}  // namespace mlxx::embed
