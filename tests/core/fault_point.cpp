#include "tests/core/fault_point.h"

#include <algorithm>
#include <cstdlib>

#include "mlxx/base/environment.h"
#include "mlxx/base/error.h"

namespace mlxx {
namespace {

constexpr const char* kVariable = "MLXX_FAULT";

constexpr std::string_view kSteps[] = {
    "value_and_grad.construct.function",
    "value_and_grad.construct.indices",
    "value_and_grad.apply.arguments",
    "value_and_grad.apply.trace",
    "value_and_grad.apply.loss",
    "value_and_grad.apply.gradients",
    "value_and_grad.apply.result",
    "vjp.construct.function",
    "vjp.construct.outputs",
    "vjp.apply.arguments",
    "vjp.apply.trace",
    "vjp.apply.outputs",
    "vjp.apply.cotangents",
    "vjp.apply.gradients",
    "vjp.apply.result",
    "custom_vjp.construct",
    "custom_vjp.forward",
    "custom_vjp.outputs",
    "custom_vjp.backward",
    "custom_vjp.cotangents",
    "parameter_gradients.construct",
    "parameter_gradients.apply.parameters",
    "parameter_gradients.apply.swap",
    "parameter_gradients.apply.loss",
    "parameter_gradients.apply.result",
};

bool is_known(std::string_view step) {
  return std::ranges::find(kSteps, step) != std::end(kSteps);
}

}  // namespace

std::span<const std::string_view> fault_steps() {
  return kSteps;
}

inline namespace with_faults {

void fault_point(std::string_view step) {
  if (!is_known(step)) {
    fail(ErrorKind::internal, kVariable, "the step '{}' is not listed", step);
  }
  auto wanted = environment(kVariable);
  if (!wanted) {
    return;
  }
  if (!is_known(*wanted)) {
    fail(
        ErrorKind::invalid_request,
        kVariable,
        "there is no step '{}'",
        *wanted);
  }
  if (*wanted == step) {
    fail(
        ErrorKind::internal,
        kVariable,
        "the step '{}' was made to fail",
        step);
  }
}

}  // namespace with_faults

ScopedFault::ScopedFault(std::string_view step) {
  setenv(kVariable, std::string(step).c_str(), 1);
}

ScopedFault::~ScopedFault() {
  unsetenv(kVariable);
}

}  // namespace mlxx
