#include "mlxx/kernels/select.h"

#include <charconv>

#include "mlxx/base/environment.h"
#include "mlxx/base/error.h"
#include "mlxx/core/device.h"
#include "mlxx/core/device_choice.h"
#include "mlxx/kernels/matmul/gemm_memory.h"

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
    selection.gemm_memory = std::make_shared<GemmMemory>();
  }
  return selection;
}

}  // namespace

Selection select_best() {
  return select(available_instruction_sets().back(), 0);
}

std::string_view to_string(ActivationForm form) {
  switch (form) {
    case ActivationForm::float32:
      return "fp32";
    case ActivationForm::int16:
      return "int16";
    case ActivationForm::int8:
      return "int8";
  }
  return "int16";
}

ActivationForm activation_form(std::string_view place, std::string_view text) {
  for (auto form :
       {ActivationForm::float32, ActivationForm::int16, ActivationForm::int8}) {
    if (to_string(form) == text) {
      return form;
    }
  }
  fail(
      ErrorKind::invalid_request,
      place,
      "must be one of fp32, int16, int8, found '{}'",
      text);
}

namespace {

InstructionSet instruction_set_from_environment() {
  auto sets = available_instruction_sets();
  auto setting = environment("MLXX_CPU");
  if (!setting || *setting == "auto") {
    return sets.back();
  }
  std::vector<std::string_view> names{"auto"};
  for (InstructionSet set : sets) {
    if (to_string(set) == *setting) {
      return set;
    }
    names.push_back(to_string(set));
  }
  fail(
      ErrorKind::invalid_request,
      "MLXX_CPU",
      "must be one of {} on this machine, found '{}'",
      fmt::join(names, ", "),
      *setting);
}

}  // namespace

Selection select_from_environment() {
  if (auto device = environment("MLXX_DEVICE")) {
    choose_device("MLXX_DEVICE", *device);
  }
  int threads = threads_from_environment();
  InstructionSet set = instruction_set_from_environment();
  auto activations = environment("MLXX_CPU_ACTIVATIONS");
  auto form = activations
      ? activation_form("MLXX_CPU_ACTIVATIONS", *activations)
      : ActivationForm::int16;
  auto setting = environment("MLXX_KERNEL");
  if (setting && *setting == "fallback") {
    Selection selection;
    selection.fallback = true;
    return selection;
  }
  if (setting && *setting != "auto") {
    fail(
        ErrorKind::invalid_request,
        "MLXX_KERNEL",
        "must be auto or fallback, found '{}'",
        *setting);
  }
  Selection selection = select(set, threads);
  selection.activations = form;
  selection.deterministic = environment_flag("MLXX_DETERMINISTIC");
  return selection;
}

}  // namespace mlxx::kernels
