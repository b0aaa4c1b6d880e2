#pragma once

#include <string>

namespace mlxx::kernels {

// Which implementation runs where there are several. Read once, when a model
// is loaded: the choice decides in which form weights become resident.
struct Selection {
  // Plain MLX operations everywhere, dtypes as stored: the reference that
  // every kernel is tested against, bit-equal to mlx-lm.
  bool fallback = false;
};

// From MLXX_KERNEL: unset or "auto" is the fastest for this machine,
// "fallback" the plain operations. Anything else is an invalid_request.
Selection select_from_environment();

}  // namespace mlxx::kernels
