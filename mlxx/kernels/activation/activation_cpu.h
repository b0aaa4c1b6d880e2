#pragma once

#include <optional>

#include "mlxx/core/mlx.h"
#include "mlxx/kernels/activation/activation.h"
#include "mlxx/kernels/layer_kernels.h"

namespace mlxx::kernels {

// The function of one instruction set.
ActivationKernel activation_kernel(
    const LayerKernels& kernels,
    Activation activation);

// Whether our CPU kernel computes activate(x), or activate(x) * factor.
bool activation_cpu_covers(
    const mx::array& x,
    const std::optional<mx::array>& factor,
    const Selection& selection);

mx::array activation_cpu(
    const mx::array& x,
    const std::optional<mx::array>& factor,
    Activation activation,
    const Selection& selection);

}  // namespace mlxx::kernels
