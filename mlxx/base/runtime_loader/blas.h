#pragma once

#include <string>

#include "mlxx/base/runtime_loader/runtime_loader.h"

namespace mlxx::runtime {

// The BLAS part of load_libmlx(), before libmlx itself.
BlasInUse load_blas(const std::string& setting);

// The library that libmlx's own BLAS calls go to, and why that one: what was
// loaded, found again by symbol. For reports.
BlasInUse blas_in_use();

}  // namespace mlxx::runtime
