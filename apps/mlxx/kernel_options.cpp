#include "apps/mlxx/kernel_options.h"

#include <CLI/CLI.hpp>

#include "mlxx/core/device_choice.h"

namespace mlxx::apps {

kernels::Selection KernelOptions::selection() const {
  kernels::Selection selection = kernels::select_from_environment();
  if (cpu_activations) {
    selection.activations =
        kernels::activation_form("--cpu-activations", *cpu_activations);
  }
  if (device) {
    choose_device("--device", *device);
  }
  selection.deterministic = selection.deterministic || deterministic;
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
  verb.add_option(
          "--device",
          options.device,
          "Which GPU computes, from 0, where MLX sees several")
      ->type_name("N")
      ->group("Model");
  verb.add_flag(
          "--deterministic",
          options.deterministic,
          "On NVIDIA GPUs: the same bits for a row whatever is computed beside "
          "it, at some cost; always so on the CPU")
      ->group("Model");
}

}  // namespace mlxx::apps
