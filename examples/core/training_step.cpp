// A small network trained by its parameter tree, with one part frozen: y = w x
// is learnt from examples while the bias stays 0.

#include <cstdio>
#include <exception>
#include <vector>

#include <mlxx/base/error.h>
#include <mlxx/core/autograd.h>
#include <mlxx/core/host_values.h>
#include <mlxx/core/parameter_gradients.h>

namespace mx = mlx::core;
using Arrays = std::vector<mx::array>;

struct Layer {
  mlxx::Parameter weight{{2, 4}, mlxx::Parameter::Kind::matrix};
  mlxx::Parameter bias{{2}, mlxx::Parameter::Kind::tensor};

  Layer() {
    weight.set({mx::zeros({2, 4}), {}, {}});
    bias.set({mx::zeros({2}), {}, {}});
  }
  void visit(const mlxx::ParameterVisitor& visitor) {
    visitor("layer.weight", weight);
    visitor("layer.bias", bias);
  }
  mx::array operator()(const mx::array& x) const {
    return mx::addmm(bias.value(), x, mx::transpose(weight.value()));
  }
};

int main() try {
  Layer layer;
  mx::array target = mx::random::normal({2, 4}, mx::random::key(1));
  mx::array x = mx::random::normal({64, 4}, mx::random::key(2));
  mx::array y = mx::matmul(x, mx::transpose(target));

  auto tree = [&](const mlxx::ParameterVisitor& v) { layer.visit(v); };
  auto loss = [&](const Arrays& batch) {
    return Arrays{mx::mean(mx::square(layer(batch[0]) - batch[1]))};
  };
  mlxx::ParameterGradients training(
      tree,
      loss,
      mlxx::frozen_names(tree, {"layer.bias"}));
  float last = 0;
  for (int step = 0; step < 200; ++step) {
    auto [value, gradients] = training.apply({x, y});
    layer.weight.set(
        {layer.weight.value() - 0.3f * gradients.at(0).gradient, {}, {}});
    last = mlxx::item_of<float>(value, "training_step");
    if (step == 0) {
      std::printf("trained: %s\n", gradients.at(0).name.c_str());
    }
  }
  bool learnt = last < 1e-6f;
  std::printf("loss below 1e-6 after 200 steps: %s\n", learnt ? "yes" : "NO");

  // By arguments instead, and without one scalar to differentiate.
  auto two = [](const Arrays& a) { return Arrays{mx::sum(a[0]), a[0]}; };
  try {
    mlxx::ValueAndGrad(two, {0}).apply({x});
    return 1;
  } catch (const mlxx::Error& error) {
    std::printf("%s\n", error.what());
  }
  return learnt ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
