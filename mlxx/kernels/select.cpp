#include "mlxx/kernels/select.h"

#include <charconv>

#include "mlxx/base/environment.h"
#include "mlxx/base/error.h"
#include "mlxx/core/device.h"

namespace mlxx::kernels {
namespace {

int threads_from_environment() {
  constexpr int kMost = 1024;
  auto setting = environment("MLXX_THREADS");
  if (!setting) {
    return 0;
  }
  int threads = 0;
  const char* end = setting->data() + setting->size();
  auto [rest, error] = std::from_chars(setting->data(), end, threads);
  if (error != std::errc() || rest != end || threads < 1 || threads > kMost) {
    fail(
        ErrorKind::invalid_request,
        "MLXX_THREADS",
        "must be a number from 1 to {}, found '{}'",
        kMost,
        *setting);
  }
  return threads;
}

Selection select(InstructionSet set, int threads) {
  Selection selection;
  selection.instruction_set = set;
  if (backend() == Backend::cpu) {
    selection.threads = std::make_shared<ThreadPool>(threads);
  }
  return selection;
}

}  // namespace

Selection select_best() {
  return select(available_instruction_sets().back(), 0);
}

Selection select_from_environment() {
  auto sets = available_instruction_sets();
  int threads = threads_from_environment();
  auto setting = environment("MLXX_KERNEL");
  if (!setting || *setting == "auto") {
    return select(sets.back(), threads);
  }
  if (*setting == "fallback") {
    Selection selection;
    selection.fallback = true;
    return selection;
  }
  std::vector<std::string_view> names{"auto", "fallback"};
  for (InstructionSet set : sets) {
    if (to_string(set) == *setting) {
      return select(set, threads);
    }
    names.push_back(to_string(set));
  }
  fail(
      ErrorKind::invalid_request,
      "MLXX_KERNEL",
      "must be one of {} on this machine, found '{}'",
      fmt::join(names, ", "),
      *setting);
}

}  // namespace mlxx::kernels
