#include "mlxx/kernels/activation/activation.h"

#include <array>
#include <cmath>
#include <numbers>
#include <utility>

#include "mlxx/base/error.h"
#include "mlxx/kernels/activation/activation_cpu.h"
#include "mlxx/kernels/swiglu/swiglu.h"

namespace mlxx::kernels {
namespace {

using Arrays = std::vector<mx::array>;

// In Python a number adopts the array's dtype; here it has to be told.
mx::array number(double value, const mx::array& like) {
  return mx::array(static_cast<float>(value), like.dtype());
}

Arrays silu(const Arrays& inputs) {
  const auto& x = inputs[0];
  return {mx::multiply(x, mx::sigmoid(x))};
}

Arrays gelu(const Arrays& inputs) {
  const auto& x = inputs[0];
  mx::array inner = mx::erf(mx::divide(x, number(std::numbers::sqrt2, x)));
  mx::array sum = mx::add(number(1, x), inner);
  return {mx::divide(mx::multiply(x, sum), number(2, x))};
}

Arrays gelu_tanh(const Arrays& inputs) {
  const auto& x = inputs[0];
  mx::array cube = mx::power(x, number(3, x));
  mx::array inner = mx::add(x, mx::multiply(number(0.044715, x), cube));
  mx::array turned =
      mx::tanh(mx::multiply(number(std::sqrt(2 / std::numbers::pi), x), inner));
  return {mx::multiply(
      mx::multiply(number(0.5, x), x),
      mx::add(number(1, x), turned))};
}

Arrays relu_squared(const Arrays& inputs) {
  const auto& x = inputs[0];
  return {mx::square(mx::maximum(x, number(0, x)))};
}

using Function = Arrays (*)(const Arrays&);

Function function_of(Activation activation) {
  switch (activation) {
    case Activation::silu:
      return silu;
    case Activation::gelu:
      return gelu;
    case Activation::gelu_tanh:
      return gelu_tanh;
    case Activation::relu_squared:
      return relu_squared;
  }
  fail(ErrorKind::internal, "activation", "no such one");
}

constexpr std::array<std::pair<std::string_view, Activation>, 7> kNames = {{
    {"silu", Activation::silu},
    {"swish", Activation::silu},
    {"gelu", Activation::gelu},
    {"gelu_pytorch_tanh", Activation::gelu_tanh},
    {"gelu_new", Activation::gelu_tanh},
    {"gelu_fast", Activation::gelu_tanh},
    {"relu2", Activation::relu_squared},
}};

}  // namespace

mx::array activate(
    const mx::array& x,
    Activation activation,
    const Selection& selection) {
  if (activation_cpu_covers(x, std::nullopt, selection)) {
    return activation_cpu(x, std::nullopt, activation, selection);
  }
  return mx::compile(function_of(activation), /* shapeless= */ true)({x})[0];
}

mx::array gated_activation(
    const mx::array& gate,
    const mx::array& up,
    Activation activation,
    const Selection& selection) {
  if (activation == Activation::silu) {
    return swiglu(gate, up, selection);
  }
  if (activation_cpu_covers(gate, up, selection)) {
    return activation_cpu(gate, up, activation, selection);
  }
  return mx::multiply(activate(gate, activation), up);
}

Activation activation_named(std::string_view place, std::string_view name) {
  for (const auto& [known, activation] : kNames) {
    if (known == name) {
      return activation;
    }
  }
  fail(
      ErrorKind::unsupported,
      std::string(place),
      "activation '{}' is not one of silu, gelu, gelu_pytorch_tanh and relu2",
      name);
}

std::string_view to_string(Activation activation) {
  for (const auto& [name, known] : kNames) {
    if (known == activation) {
      return name;
    }
  }
  return "unknown";
}

}  // namespace mlxx::kernels
