#pragma once

#include "mlxx/core/array_function.h"

namespace mlxx {

// `function` with its intermediate values dropped after the forward pass and
// computed a second time in the backward pass. Gradients reach its inputs and
// whatever it captures (weights, a mounted adapter), as if it had been called
// without this.
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
// depend on such an input, what the function has evaluated, and its outputs.
// Outputs that are inputs or captured arrays, or that carry no gradient, are
// passed on as they are.
//
// Bits: values are the same as without; so are gradients, but for roundings in
// two cases. An array of at least three uses, if between those in the function
// MLX would have come to others before it. An array that the function also
// stores elsewhere, if it is used from there: its gradient comes its own way.
//
// Checkpoints may be nested, used inside mx::compile() (shapeless too) and any
// number of times, on any thread. Second derivatives are right, but the graph
// of a first derivative is an ordinary one, whose values are kept. Forward-mode
// derivatives and mx::vmap() are right and keep values as well.
// mx::export_function() refuses a checkpoint.
//
// On a CPU, a checkpoint with large arrays waits at its ends, and each 64 MiB
// in its backward pass, for what MLX has queued, or else the queue alone would
// hold the values of several; so mx::async_eval() takes longer to return.
//
// Reference: MLX's mx::checkpoint. That one gives captured arrays a gradient of
// exactly 0, calls the function again in the backward pass (other random
// numbers, effects twice), asks for the gradient of every input (an error for
// quantized weights), and pulls zeros back from an unused output (0 / 0 is
// NaN).
//
// invalid_request: no function. Errors in the backward pass are those of the
// operations themselves, unchanged.
ArrayFunction checkpointed(ArrayFunction function);

}  // namespace mlxx
