#include "mlxx/core/autograd.h"

#include <algorithm>
#include <stdexcept>
#include <typeinfo>

#include <fmt/ranges.h>
#include <mlx/primitives.h>

#include "mlxx/base/error.h"
#include "mlxx/core/dtype.h"
#include "mlxx/core/fault_point.h"
#include "mlxx/core/mlx_errors.h"

namespace mlxx {
namespace {

constexpr std::string_view kValueAndGrad = "value_and_grad";
constexpr std::string_view kVjp = "vjp";

// Whether MLX may have thrown it: its own types are these exactly, and one
// derived from them comes from somebody's gradient callback.
bool is_from_mlx(const std::exception& error) {
  const auto& type = typeid(error);
  return type == typeid(std::invalid_argument) ||
      type == typeid(std::runtime_error) || type == typeid(std::logic_error) ||
      type == typeid(std::out_of_range) || type == typeid(std::bad_alloc);
}

// mx::vjp, with the errors that autograd.h promises.
auto pull_back(
    std::string_view place,
    const ArrayFunction& function,
    const std::vector<mx::array>& primals,
    const std::vector<mx::array>& cotangents) {
  bool inside = false;
  auto watched = [&](const std::vector<mx::array>& tracers) {
    inside = true;
    auto outputs = function(tracers);
    inside = false;
    return outputs;
  };
  try {
    return mx::vjp(watched, primals, cotangents);
  } catch (const std::exception& error) {
    if (inside || !is_from_mlx(error)) {
      throw;
    }
    fail_as_mlx(place, error);
  }
}

bool has_gradient(const mx::array& x) {
  return mx::issubdtype(x.dtype(), mx::inexact);
}

void check_primal(std::string_view place, size_t index, const mx::array& x) {
  if (!has_gradient(x)) {
    fail(
        ErrorKind::invalid_request,
        place,
        "argument {} is {}, and only floating arrays have gradients",
        index,
        dtype_name(x.dtype()));
  }
}

// As many as `primals`, each of its primal's shape and dtype. MLX does not look
// at what a custom gradient returned.
void conform(
    std::string_view place,
    const std::vector<mx::array>& primals,
    std::vector<mx::array>& gradients) {
  if (gradients.size() != primals.size()) {
    fail(
        ErrorKind::internal,
        place,
        "{} gradients came back for {} arguments",
        gradients.size(),
        primals.size());
  }
  for (size_t i = 0; i < primals.size(); ++i) {
    if (gradients[i].shape() != primals[i].shape()) {
      fail(
          ErrorKind::invalid_request,
          place,
          "gradient {} has shape ({}), its argument ({}): a custom gradient "
          "returned another shape",
          i,
          fmt::join(gradients[i].shape(), ", "),
          fmt::join(primals[i].shape(), ", "));
    }
    if (gradients[i].dtype() != primals[i].dtype()) {
      gradients[i] = mx::astype(gradients[i], primals[i].dtype());
    }
  }
}

// A new node with the same values. MLX gives an output's cotangent to the node:
// to the wrong one if some node is a stop_gradient, once only if one is there
// twice.
mx::array own_node(const mx::array& x) {
  return x.has_primitive() ? mx::copy(x, x.primitive().stream()) : mx::copy(x);
}

void check_loss(const std::vector<mx::array>& outputs) {
  if (outputs.size() != 1) {
    fail(
        ErrorKind::invalid_request,
        kValueAndGrad,
        "the loss must be exactly one array, found {}",
        outputs.size());
  }
  const mx::array& loss = outputs[0];
  if (loss.ndim() != 0 || !is_float(loss.dtype())) {
    fail(
        ErrorKind::invalid_request,
        kValueAndGrad,
        "the loss must be a floating scalar of shape (), found {} of shape "
        "({})",
        dtype_name(loss.dtype()),
        fmt::join(loss.shape(), ", "));
  }
}

// Of Vjp's function, and what is to be pulled back from it.
void check_output(
    size_t index,
    const mx::array& output,
    const mx::array& cotangent) {
  if (!has_gradient(output)) {
    fail(
        ErrorKind::invalid_request,
        kVjp,
        "output {} is {}, and only floating arrays have gradients",
        index,
        dtype_name(output.dtype()));
  }
  if (cotangent.shape() != output.shape()) {
    fail(
        ErrorKind::invalid_request,
        kVjp,
        "cotangent {} has shape ({}), its output ({})",
        index,
        fmt::join(cotangent.shape(), ", "),
        fmt::join(output.shape(), ", "));
  }
  if (cotangent.dtype() == mx::complex64 && is_float(output.dtype())) {
    fail(
        ErrorKind::invalid_request,
        kVjp,
        "cotangent {} is complex, its output {}",
        index,
        dtype_name(output.dtype()));
  }
}

}  // namespace

ValueAndGrad::ValueAndGrad(ArrayFunction loss, std::vector<int> indices)
    : loss_(std::move(loss)), indices_(std::move(indices)) {
  fault_point("value_and_grad.construct.function");
  if (!loss_) {
    fail(ErrorKind::invalid_request, kValueAndGrad, "no loss function");
  }
  if (indices_.empty()) {
    fail(
        ErrorKind::invalid_request,
        kValueAndGrad,
        "the list of argument indices is empty");
  }
  for (auto it = indices_.begin(); it != indices_.end(); ++it) {
    bool twice = std::find(indices_.begin(), it, *it) != it;
    if (*it < 0 || twice) {
      fail(
          ErrorKind::invalid_request,
          kValueAndGrad,
          "argument index {} is {}",
          *it,
          twice ? "listed twice" : "negative");
    }
  }
  fault_point("value_and_grad.construct.indices");
}

ValueAndGrad::Result ValueAndGrad::apply(
    const std::vector<mx::array>& arguments) const {
  if (!loss_) {
    fail(ErrorKind::invalid_request, kValueAndGrad, "used after a move");
  }
  std::vector<mx::array> primals;
  for (int index : indices_) {
    if (static_cast<size_t>(index) >= arguments.size()) {
      fail(
          ErrorKind::invalid_request,
          kValueAndGrad,
          "argument index {} is past the {} arguments",
          index,
          arguments.size());
    }
    check_primal(kValueAndGrad, index, arguments[index]);
    primals.push_back(arguments[index]);
  }
  fault_point("value_and_grad.apply.arguments");

  auto traced_loss = [&](const std::vector<mx::array>& tracers) {
    auto traced = arguments;
    for (size_t i = 0; i < tracers.size(); ++i) {
      traced[indices_[i]] = tracers[i];
    }
    fault_point("value_and_grad.apply.trace");
    auto outputs = loss_(traced);
    fault_point("value_and_grad.apply.loss");
    check_loss(outputs);
    return outputs;
  };
  auto [outputs, gradients] =
      pull_back(kValueAndGrad, traced_loss, primals, {mx::array(1.0f)});
  fault_point("value_and_grad.apply.gradients");
  conform(kValueAndGrad, primals, gradients);
  fault_point("value_and_grad.apply.result");
  return {std::move(outputs[0]), std::move(gradients)};
}

Vjp::Vjp(ArrayFunction function, int output_count)
    : function_(std::move(function)), output_count_(output_count) {
  fault_point("vjp.construct.function");
  if (!function_) {
    fail(ErrorKind::invalid_request, kVjp, "no function");
  }
  if (output_count_ < 1) {
    fail(
        ErrorKind::invalid_request,
        kVjp,
        "the number of outputs must be at least 1, is {}",
        output_count_);
  }
  fault_point("vjp.construct.outputs");
}

Vjp::Result Vjp::apply(
    const std::vector<mx::array>& primals,
    const std::vector<mx::array>& cotangents) const {
  if (!function_) {
    fail(ErrorKind::invalid_request, kVjp, "used after a move");
  }
  if (primals.empty()) {
    fail(ErrorKind::invalid_request, kVjp, "no arguments");
  }
  for (size_t i = 0; i < primals.size(); ++i) {
    check_primal(kVjp, i, primals[i]);
  }
  auto count = static_cast<size_t>(output_count_);
  if (cotangents.size() != count) {
    fail(
        ErrorKind::invalid_request,
        kVjp,
        "{} cotangents for {} outputs",
        cotangents.size(),
        count);
  }
  fault_point("vjp.apply.arguments");

  auto traced_function = [&](const std::vector<mx::array>& tracers) {
    fault_point("vjp.apply.trace");
    auto outputs = function_(tracers);
    fault_point("vjp.apply.outputs");
    if (outputs.size() != count) {
      fail(
          ErrorKind::invalid_request,
          kVjp,
          "the function returned {} arrays instead of {}",
          outputs.size(),
          count);
    }
    for (size_t i = 0; i < count; ++i) {
      check_output(i, outputs[i], cotangents[i]);
      outputs[i] = own_node(outputs[i]);
    }
    fault_point("vjp.apply.cotangents");
    return outputs;
  };
  auto [outputs, gradients] =
      pull_back(kVjp, traced_function, primals, cotangents);
  fault_point("vjp.apply.gradients");
  conform(kVjp, primals, gradients);
  fault_point("vjp.apply.result");
  return {std::move(outputs), std::move(gradients)};
}

}  // namespace mlxx
