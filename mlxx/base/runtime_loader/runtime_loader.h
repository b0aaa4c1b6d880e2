#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "mlxx/base/runtime_loader/candidates.h"

// Chooses and loads libmlx before anything that needs it: the program and the
// C library are thin and link nothing of MLX, so that one build runs on the
// CPU, CUDA or Metal variant, and a wrong one is a message and not a crash.

namespace mlxx::runtime {

struct BlasInUse {
  // Empty if libmlx uses its own.
  std::filesystem::path path;
  std::string reason;  // such as "MLXX_BLAS=mlx"
};

struct LoadedRuntime {
  std::filesystem::path libmlx;
  Origin origin;
  std::string variant;
  BlasInUse blas;
  // The better candidates that could not be used, each with its problem.
  std::vector<Candidate> passed_over;
};

// Loads a BLAS and then libmlx into the global scope of the process, which
// cannot be undone, and makes sure that libmlx is the version built against.
// Once per process; call it before other threads start.
//
// BLAS (Linux only): OpenBLAS if it is found, since the one in MLX's CPU wheel
// is the slow reference. MLXX_BLAS=mlx leaves MLX's own, MLXX_BLAS=openblas
// requires OpenBLAS, MLXX_BLAS=/path requires that library. MLXX_KERNEL=
// fallback also leaves MLX's own, for results equal to MLX's Python users'.
//
// Errors: not_found (no libmlx; all tried places are named), unsupported (its
// version differs), bad_file (a named one that is damaged or not to be
// trusted), invalid_request (settings).
LoadedRuntime load_libmlx(const LoaderOptions& options = {});

// After load_libmlx(): loads libmlxx-impl from beside the module or ../lib and
// returns its handle. not_found, bad_file.
void* load_implementation();

}  // namespace mlxx::runtime
