#pragma once

#include <gtest/gtest.h>

#include "mlxx/core/array_function.h"

namespace mlxx {

struct GradientCheckOptions {
  // Allowed error of the derivative along a random direction, relative to what
  // such a derivative typically is: |gradient| * |direction| / sqrt(count).
  double tolerance = 1e-3;
  // Random directions per argument, each with random weights of the outputs.
  int directions = 4;
  uint64_t seed = 1;
  // Arguments to differentiate in; empty: all. Others are constants.
  std::vector<int> arguments = {};
};

// Whether the gradients of `function` (through Vjp, so through whatever
// gradient it declares) are the derivatives of its values: a success, or a
// failure that says for which argument they are not and by how much.
//
// function(arguments) returns floating arrays of float32 or float64; arguments
// to differentiate in have one of these too, are finite and lie where the
// function is smooth (no kink such as relu's within a twentieth of their size).
// Anything else is a failure. It must be deterministic. Half precision cannot
// be checked this way: compare with the gradient in float32.
//
// Method: for random weights w of the outputs and a random direction d of one
// argument, <gradient, d> must equal the derivative of <w, function(x + h d)>
// at h = 0. Central differences for a ladder of steps h, each pair extrapolated
// to h -> 0 (Richardson); the step where neighbours agree best is taken, and
// their disagreement is the error of the measurement: where it exceeds the
// tolerance, the check fails as inconclusive. Sums are in double on the host.
testing::AssertionResult check_gradient(
    const ArrayFunction& function,
    const std::vector<mx::array>& arguments,
    const GradientCheckOptions& options = {});

}  // namespace mlxx
