#pragma once

#include <optional>
#include <string>

#include "mlxx/core/parameters.h"
#include "mlxx/hub/checkpoint.h"
#include "mlxx/kernels/select.h"

namespace mlxx::models {

// Gives the parameter the form that `tensor` will have in memory, on this
// device and with this selection, without reading a number of it: matrices are
// arrays that cannot be evaluated or empty panels, the rest zeros. `compute`:
// what floating-point numbers become; absent: as stored. `scales`: the same of
// those of GGUF.
void set_hollow(
    Parameter& parameter,
    const hub::TensorInfo& tensor,
    const std::string& checkpoint_format,
    const std::optional<mx::Dtype>& compute,
    mx::Dtype scales,
    const kernels::Selection& selection);

}  // namespace mlxx::models
