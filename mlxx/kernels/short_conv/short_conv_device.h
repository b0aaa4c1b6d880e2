#pragma once

#include "mlxx/kernels/short_conv/short_conv.h"

namespace mlxx::kernels {

// Whether the GPU kernel computes these, whose shapes have been checked: on
// CUDA, all of one dtype.
bool covers_device_short_conv(
    const ShortConvInputs& inputs,
    const Selection& selection);

// `state` is there. One launch; gradients are those of the plain operations.
StatefulResult device_short_conv(const ShortConvInputs& inputs);

}  // namespace mlxx::kernels
