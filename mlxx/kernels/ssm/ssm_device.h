#pragma once

#include "mlxx/kernels/ssm/ssm.h"

namespace mlxx::kernels {

// Whether the GPU kernel computes these, whose shapes have been checked: on
// CUDA, x, B and C of one dtype, a state in float32 or none.
bool covers_device_ssm_scan(
    const SsmInputs& inputs,
    const Selection& selection);

// One launch for all tokens; gradients are those of the plain operations.
StatefulResult device_ssm_scan(const SsmInputs& inputs);

}  // namespace mlxx::kernels
