#pragma once

#include "mlxx/kernels/gated_delta/gated_delta.h"

namespace mlxx::kernels {

// Whether the CPU kernel computes these, whose shapes have been checked.
bool covers_gated_delta(
    const GatedDeltaInputs& inputs,
    const Selection& selection);

StatefulResult cpu_gated_delta(
    const GatedDeltaInputs& inputs,
    const Selection& selection);

// The plain operations; `state` is there.
StatefulResult plain_gated_delta(const GatedDeltaInputs& inputs);

}  // namespace mlxx::kernels
