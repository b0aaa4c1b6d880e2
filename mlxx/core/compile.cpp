#include "mlxx/core/compile.h"

#include "mlxx/base/environment.h"
#include "mlxx/base/error.h"
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
  bool fuse = setting ? *setting == "fuse" : backend() != Backend::cpu;
  mx::set_compile_mode(
      fuse ? mx::CompileMode::enabled : mx::CompileMode::no_fuse);
}

}  // namespace mlxx
