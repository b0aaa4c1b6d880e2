#pragma once

#include "mlxx/kernels/short_conv/short_conv.h"

namespace mlxx::kernels {

// Whether the CPU kernel computes these, whose shapes have been checked.
bool covers_short_conv(
    const ShortConvInputs& inputs,
    const Selection& selection);

// `state` is there.
StatefulResult cpu_short_conv(
    const ShortConvInputs& inputs,
    const Selection& selection);

// The plain operations; `state` is there.
StatefulResult plain_short_conv(const ShortConvInputs& inputs);

}  // namespace mlxx::kernels
