#pragma once

#include "mlxx/kernels/gated_delta/gated_delta.h"

namespace mlxx::kernels {

// Whether the GPU kernel computes these, whose shapes have been checked: on
// CUDA, of one dtype, with a state in float32 that is there.
bool covers_device_gated_delta(
    const GatedDeltaInputs& inputs,
    const Selection& selection);

// One launch for all tokens; gradients are those of the plain operations.
StatefulResult device_gated_delta(const GatedDeltaInputs& inputs);

}  // namespace mlxx::kernels
