#include "mlxx/kernels/select.h"

#include "mlxx/base/environment.h"
#include "mlxx/base/error.h"

namespace mlxx::kernels {

Selection select_from_environment() {
  Selection selection;
  auto setting = environment("MLXX_KERNEL");
  if (!setting || *setting == "auto") {
    return selection;
  }
  if (*setting != "fallback") {
    fail(
        ErrorKind::invalid_request,
        "MLXX_KERNEL",
        "must be 'auto' or 'fallback', found '{}'",
        *setting);
  }
  selection.fallback = true;
  return selection;
}

}  // namespace mlxx::kernels
