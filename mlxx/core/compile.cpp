#include "mlxx/core/compile.h"

#include <algorithm>
#include <utility>

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

void set_compile_mode(std::string_view name) {
  using Mode = mx::CompileMode;
  constexpr std::pair<std::string_view, Mode> kModes[] = {
      {"disabled", Mode::disabled},
      {"no_simplify", Mode::no_simplify},
      {"no_fuse", Mode::no_fuse},
      {"enabled", Mode::enabled}};
  const auto* found = std::ranges::find(
      kModes,
      name,
      &std::pair<std::string_view, Mode>::first);
  if (found == std::end(kModes)) {
    fail(
        ErrorKind::invalid_request,
        "compile mode",
        "must be 'disabled', 'no_simplify', 'no_fuse' or 'enabled', found '{}'",
        name);
  }
  Mode mode = found->second;
  bool fuses = mode == Mode::no_simplify || mode == Mode::enabled;
  if (fuses && backend() == Backend::cpu && !prepare_fusing()) {
    fail(
        ErrorKind::unsupported,
        "compile mode",
        "'{}' fuses, for which the CPU needs a working g++",
        name);
  }
  mx::set_compile_mode(mode);
}

}  // namespace mlxx
