#pragma once

#include "mlxx/core/array_function.h"

namespace mlxx {

// `function` with its intermediate values dropped after the forward pass and
// computed a second time in the backward pass. Values and gradients, of the
// inputs as of everything that the function captures (weights, adapters), are
// those of calling `function` itself, bit for bit; where one array is used at
// least three times and the backward pass meets those uses in another order,
// its gradient may differ in rounding.
//
// The function is called exactly once for each call, in the forward pass; what
// runs again is the graph that it built. So random numbers are the same, what
// it does besides (counting, writing to a cache) happens once, and what it
// throws comes out of the call unchanged. If nothing is being traced, it is
// called and that is all.
//
// Computed again: all that depends on an input that is being differentiated,
// and whatever else only the result holds when the function returns. Kept: the
// inputs, what was there before, what somebody else still holds and does not
// depend on such an input, and what the function evaluated. Outputs that are
// inputs or captured arrays are passed on. Checkpoints may be nested, used
// inside mx::compile() (shapeless too) and any number of times.
//
// Second derivatives are right, but the graph of a first derivative is an
// ordinary one, whose values are kept. Forward-mode derivatives are right and
// keep values; mx::vmap() puts the plain operations in the place of a
// checkpoint. mx::export_function() refuses a function that has one.
//
// Reference: MLX's mx::checkpoint. That one gives captured arrays a gradient of
// exactly 0, calls the function again in the backward pass (other random
// numbers, effects twice), asks for the gradients of all inputs (an error for
// quantized weights), and gives an unused output's zeros to its operations.
//
// invalid_request: no function. Errors in the backward pass are those of the
// operations themselves, unchanged.
ArrayFunction checkpointed(ArrayFunction function);

}  // namespace mlxx
