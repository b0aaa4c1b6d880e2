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

// The same for decays of `a` [B, T, Hv], parameters [Hv].
bool covers_decays(
    const mx::array& a,
    const mx::array& a_log,
    const mx::array& bias,
    const Selection& selection);
mx::array cpu_decays(
    const mx::array& a,
    const mx::array& a_log,
    const mx::array& bias,
    const Selection& selection);

// {a, a_log, bias} -> {decays}.
std::vector<mx::array> plain_decays(const std::vector<mx::array>& inputs);

// The plain operations; `state` is there.
StatefulResult plain_gated_delta(const GatedDeltaInputs& inputs);

}  // namespace mlxx::kernels
