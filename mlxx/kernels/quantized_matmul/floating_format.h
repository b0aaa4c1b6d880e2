#pragma once

#include <optional>

#include "mlxx/core/parameters.h"
#include "mlxx/kernels/quantized_matmul/panel_kernels.h"

namespace mlxx::kernels {

// How panels hold a format whose numbers are floating-point codes.
struct FloatingFormat {
  Codes codes;
  NumberType scales;
  bool half_groups;
  int words_per_chunk;
};

// Nothing for another format.
inline std::optional<FloatingFormat> floating_format(
    const QuantizationSpec& spec) {
  if (spec == QuantizationSpec{32, 4, "mxfp4"}) {
    return FloatingFormat{Codes::e2m1, NumberType::e8m0, false, 4};
  }
  if (spec == QuantizationSpec{16, 4, "nvfp4"}) {
    return FloatingFormat{Codes::e2m1, NumberType::e4m3, true, 4};
  }
  if (spec == QuantizationSpec{32, 8, "mxfp8"}) {
    return FloatingFormat{Codes::e4m3, NumberType::e8m0, false, 8};
  }
  return std::nullopt;
}

}  // namespace mlxx::kernels
