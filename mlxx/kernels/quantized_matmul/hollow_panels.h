#pragma once

#include <memory>

#include "mlxx/core/parameters.h"
#include "mlxx/kernels/select.h"

namespace mlxx::kernels {

// What a matrix, or a stack of them, is packed from, as far as sizes go.
struct HollowSource {
  WeightArrays arrays;  // lazy: only shapes and dtypes are looked at
  std::optional<QuantizationSpec> quantization;
  // Every bias is known to be minus half the range times the scale.
  bool symmetric = false;
};

// What pack_quantized(), pack_dense() or pack_experts() would make of it, but
// without numbers: it says how much memory a model will take, and graphs can
// be built on it that are never evaluated. Null where those give null.
std::shared_ptr<const PackedWeights> hollow_panels(
    const HollowSource& source,
    const Selection& selection);

}  // namespace mlxx::kernels
