#include "mlxx/core/custom_vjp.h"

#include <fmt/ranges.h>

#include "mlxx/base/error.h"
#include "mlxx/core/fault_point.h"

namespace mlxx {
namespace {

void check_cotangents(
    const std::string& name,
    const std::vector<mx::array>& primals,
    std::vector<mx::array>& cotangents) {
  if (cotangents.size() != primals.size()) {
    fail(
        ErrorKind::invalid_request,
        name,
        "the gradient returned {} cotangents for {} arguments",
        cotangents.size(),
        primals.size());
  }
  for (size_t i = 0; i < primals.size(); ++i) {
    if (cotangents[i].shape() != primals[i].shape()) {
      fail(
          ErrorKind::invalid_request,
          name,
          "the gradient returned shape ({}) for argument {} of shape ({})",
          fmt::join(cotangents[i].shape(), ", "),
          i,
          fmt::join(primals[i].shape(), ", "));
    }
    if (cotangents[i].dtype() != primals[i].dtype()) {
      cotangents[i] = mx::astype(cotangents[i], primals[i].dtype());
    }
  }
}

}  // namespace

ArrayFunction
custom_vjp(std::string name, ArrayFunction forward, GradientFunction gradient) {
  if (!forward || !gradient) {
    fail(
        ErrorKind::invalid_request,
        name,
        "no {} function",
        forward ? "gradient" : "forward");
  }
  auto checked_forward = [name, forward = std::move(forward)](
                             const std::vector<mx::array>& primals) {
    if (primals.empty()) {
      fail(ErrorKind::invalid_request, name, "called without arguments");
    }
    fault_point("custom_vjp.forward");
    auto outputs = forward(primals);
    fault_point("custom_vjp.outputs");
    if (outputs.empty()) {
      fail(ErrorKind::invalid_request, name, "the function returned no arrays");
    }
    return outputs;
  };
  auto checked_gradient = [name, gradient = std::move(gradient)](
                              const std::vector<mx::array>& primals,
                              const std::vector<mx::array>& cotangents,
                              const std::vector<mx::array>& outputs) {
    fault_point("custom_vjp.backward");
    auto result = gradient(primals, cotangents, outputs);
    fault_point("custom_vjp.cotangents");
    check_cotangents(name, primals, result);
    return result;
  };
  fault_point("custom_vjp.construct");
  return mx::custom_vjp(
      std::move(checked_forward),
      std::move(checked_gradient));
}

}  // namespace mlxx
