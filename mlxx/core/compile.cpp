#include "mlxx/core/compile.h"

#include "mlxx/base/environment.h"
#include "mlxx/base/error.h"
#include "mlxx/core/compile_mode.h"
#include "mlxx/core/device.h"

namespace mlxx {

void apply_compile_mode() {
  auto setting = environment("MLXX_COMPILE");
  if (setting && *setting != "fuse" && *setting != "no_fuse") {
    fail(
        ErrorKind::invalid_request,
        "MLXX_COMPILE",
        "must be 'fuse' or 'no_fuse', found '{}'",
        *setting);
  }
  bool is_cpu = backend() == Backend::cpu;
  bool fuse = setting ? *setting == "fuse" : !is_cpu;
  if (fuse && is_cpu) {
    fuse = prepare_fusing();
  }
  mx::set_compile_mode(
      fuse ? mx::CompileMode::enabled : mx::CompileMode::no_fuse);
}

}  // namespace mlxx
