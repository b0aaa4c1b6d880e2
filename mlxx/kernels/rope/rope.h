#pragma once

#include <optional>
#include <utility>

#include "mlxx/core/mlx.h"
#include "mlxx/kernels/select.h"

namespace mlxx::kernels {

// How positions become angles: position * position_scale / wavelength[i].
struct RopeAngles {
  int dims;          // rotated, of the last axis; even
  bool traditional;  // rotate pairs (2i, 2i + 1), not (i, dims / 2 + i)
  // base^(2i / dims) unless `wavelengths` [dims / 2] float32 are given.
  std::optional<float> base;
  std::optional<mx::array> wavelengths;
  float position_scale = 1;
};

// The position of the first of L tokens: a number, or in a graph that serves
// every position an int32 array of one element, or one for each row [B].
struct Position {
  // `number` beside an array is what checks of the position go by.
  // Implicit, since almost every position is a number.
  Position(int number) : number(number) {}
  explicit Position(mx::array array) : array(std::move(array)) {}

  // Of all L tokens: [L], or [B, L] of an array with B elements.
  mx::array of_tokens(int length) const {
    mx::array steps = mx::arange(length);
    if (!array) {
      return mx::add(steps, mx::array(number, mx::int32));
    }
    return mx::add(
        steps,
        array->size() == 1 ? mx::flatten(*array) : mx::expand_dims(*array, 1));
  }

  int number = 0;
  std::optional<mx::array> array;
};

// Rotary position embedding. x [B, H, L, D]; token l is at position
// first + l. Differentiable in x. Fallback: mx::fast::rope. In a shapeless
// graph B, H, L and D must not vary.
mx::array rope(
    const mx::array& x,
    const RopeAngles& angles,
    const Position& first,
    const Selection& selection);

}  // namespace mlxx::kernels
