#pragma once

#include <optional>
#include <string>

#include "mlxx/kernels/select.h"

namespace CLI {
class App;
}

namespace mlxx::apps {

// What verbs that run a model take alike about how it is computed.
struct KernelOptions {
  std::optional<std::string> cpu_activations;
  std::optional<std::string> device;
  bool deterministic = false;

  // What the environment says, and these options in front of it.
  // invalid_request names the option.
  kernels::Selection selection() const;
};

void add_kernel_options(CLI::App& verb, KernelOptions& options);

}  // namespace mlxx::apps
