#pragma once

#include <string_view>

#include "mlxx/core/custom_kernel.h"

namespace mlxx {

// All throw invalid_request; `place` names the kernel.

// Names that are identifiers and differ, at least one output, code or a
// fallback, device sources that are not empty and fit their requirement.
void check_spec(const CustomKernelSpec& spec, std::string_view place);

// Whether no output of a call has elements, so that there is nothing to run.
bool is_empty(const CustomKernelCall& call);

// Counts, shapes, template values, grid, threadgroup and initial value, as far
// as every backend needs them. A call without work may have no grid.
void check_call(
    const CustomKernelSpec& spec,
    const CustomKernelCall& call,
    std::string_view place);

// What one GPU's backend adds: its limits, no 0-d input whose shape the source
// reads.
void check_device_call(
    const CustomKernelSpec& spec,
    const DeviceKernelSource& source,
    const CustomKernelCall& call,
    Backend backend,
    std::string_view place);

}  // namespace mlxx
