#pragma once

#include "mlxx/kernels/ssm/ssm.h"

namespace mlxx::kernels {

// Whether the CPU kernel computes these, whose shapes have been checked.
bool covers_ssm_scan(const SsmInputs& inputs, const Selection& selection);

StatefulResult cpu_ssm_scan(
    const SsmInputs& inputs,
    const Selection& selection);

}  // namespace mlxx::kernels
