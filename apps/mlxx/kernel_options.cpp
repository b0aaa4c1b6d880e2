#include "apps/mlxx/kernel_options.h"

#include <CLI/CLI.hpp>

namespace mlxx::apps {

kernels::Selection KernelOptions::selection() const {
  kernels::Selection selection = kernels::select_from_environment();
  if (cpu_activations) {
    selection.activations =
        kernels::activation_form("--cpu-activations", *cpu_activations);
  }
  return selection;
}

void add_kernel_options(CLI::App& verb, KernelOptions& options) {
  verb.add_option(
          "--cpu-activations",
          options.cpu_activations,
          "How activations meet quantized weights on the CPU: int16 (nearly "
          "exact, the default), int8 (faster prompts) or fp32 (exact)")
      ->type_name("FORM")
      ->group("Model");
}

}  // namespace mlxx::apps
