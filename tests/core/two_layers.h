#pragma once

#include "mlxx/core/autograd.h"
#include "mlxx/core/parameter_gradients.h"

namespace mlxx {

class FakePacked : public PackedWeights {
 public:
  mx::array matmul(const mx::array& x) const override {
    return x;
  }
  mx::array take_rows(const mx::array& ids) const override {
    return ids;
  }
  WeightArrays restore() const override {
    return {mx::full({1}, 5.0f), std::nullopt, std::nullopt};
  }
  size_t nbytes() const override {
    return 7;
  }
};

// A module of two layers, shown out of their order: sum((W2 tanh(W1 x + b))^2).
struct TwoLayers {
  Parameter first{{4, 3}, Parameter::Kind::matrix};
  Parameter bias{{4}, Parameter::Kind::tensor};
  Parameter second{{2, 4}, Parameter::Kind::matrix};

  TwoLayers() {
    uint64_t seed = 1;
    for (Parameter* parameter : {&first, &bias, &second}) {
      parameter->set({normal(parameter->shape(), seed++), {}, {}});
    }
  }

  static mx::array normal(const mx::Shape& shape, uint64_t seed) {
    mx::array x = mx::random::normal(shape, mx::float32, mx::random::key(seed));
    mx::eval(x);
    return x;
  }
  static mx::array batch() {
    return normal({5, 3}, 9);
  }

  ParameterTree tree() {
    return [this](const ParameterVisitor& visitor) {
      visitor("second.weight", second);
      visitor("first.weight", first);
      visitor("first.bias", bias);
    };
  }

  static mx::array loss_of(
      const mx::array& x,
      const mx::array& first,
      const mx::array& bias,
      const mx::array& second) {
    mx::array hidden =
        mx::tanh(mx::add(mx::matmul(x, mx::transpose(first)), bias));
    mx::array y = mx::matmul(hidden, mx::transpose(second));
    return mx::sum(mx::square(y));
  }
  ArrayFunction loss() {
    return [this](const std::vector<mx::array>& inputs) {
      return std::vector{
          loss_of(inputs.at(0), first.value(), bias.value(), second.value())};
    };
  }

  // Without the parameter tree, by argument.
  ValueAndGrad::Result expected() const {
    auto function = [](const std::vector<mx::array>& x) {
      return std::vector{loss_of(x[0], x[1], x[2], x[3])};
    };
    return ValueAndGrad(function, {1, 2, 3})
        .apply({batch(), first.value(), bias.value(), second.value()});
  }
  float expected_loss() const {
    return expected().loss.item<float>();
  }
  mx::array expected_gradient(std::string_view name) const {
    size_t index = name == "first.weight" ? 0 : name == "first.bias" ? 1 : 2;
    return expected().gradients[index];
  }

  // Which arrays the parameters hold.
  std::vector<std::uintptr_t> ids() const {
    return {first.value().id(), bias.value().id(), second.value().id()};
  }
};

}  // namespace mlxx
