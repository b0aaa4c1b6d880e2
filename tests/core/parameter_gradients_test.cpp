#include "mlxx/core/parameter_gradients.h"

#include <gtest/gtest.h>

#include "tests/core/error_of.h"
#include "tests/core/two_layers.h"
#include "tests/kernels/relative_error.h"

namespace mlxx {
namespace {

using Arrays = std::vector<mx::array>;

TEST(ParameterGradients, AreNamedInTheTreesOrder) {
  TwoLayers layers;
  auto result =
      ParameterGradients(layers.tree(), layers.loss()).apply({layers.batch()});
  EXPECT_EQ(result.loss.item<float>(), layers.expected_loss());
  ASSERT_EQ(result.gradients.size(), 3u);
  const char* names[] = {"second.weight", "first.weight", "first.bias"};
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(result.gradients[i].name, names[i]);
    EXPECT_TRUE(same_bits(
        result.gradients[i].gradient,
        layers.expected_gradient(names[i])))
        << names[i];
  }
}

TEST(ParameterGradients, LeaveFrozenPartsOut) {
  TwoLayers layers;
  auto only_first = [](const std::string& name) {
    return !name.starts_with("first.");
  };
  for (const auto& frozen :
       {FrozenParameters(only_first),
        frozen_names(layers.tree(), {"second.weight"})}) {
    auto result = ParameterGradients(layers.tree(), layers.loss(), frozen)
                      .apply({layers.batch()});
    ASSERT_EQ(result.gradients.size(), 2u);
    EXPECT_EQ(result.gradients[0].name, "first.weight");
    EXPECT_EQ(result.gradients[1].name, "first.bias");
    EXPECT_TRUE(same_bits(
        result.gradients[0].gradient,
        layers.expected_gradient("first.weight")));
  }
  EXPECT_ERROR(
      frozen_names(layers.tree(), {"second.weight", "third.weight"}),
      "invalid_request",
      "[parameter_gradients] there is no parameter 'third.weight' to freeze");
  auto all = [](const std::string&) { return true; };
  EXPECT_ERROR(
      ParameterGradients(layers.tree(), layers.loss(), all).apply({}),
      "invalid_request",
      "none of 3 parameters is left to train");
}

TEST(ParameterGradients, ParametersHoldTheirOwnArraysAgain) {
  TwoLayers layers;
  auto before = layers.ids();
  bool failing = true;
  auto loss = [&](const Arrays& x) {
    EXPECT_NE(layers.ids(), before);
    auto result = layers.loss()(x);
    if (failing) {
      throw 42;
    }
    return result;
  };
  ParameterGradients gradients(layers.tree(), loss);
  EXPECT_THROW(gradients.apply({layers.batch()}), int);
  EXPECT_EQ(layers.ids(), before);
  failing = false;
  gradients.apply({layers.batch()});
  EXPECT_EQ(layers.ids(), before);
  // An error from MLX's backward pass, long after the loss has run.
  auto stopped = [&](const Arrays& x) {
    auto cpu = mx::Device(mx::Device::cpu);
    mx::array y = mx::reshape(layers.loss()(x)[0], {1, 1});
    return Arrays{mx::sum(mx::linalg::inv(y, cpu))};
  };
  EXPECT_ERROR(
      ParameterGradients(layers.tree(), stopped).apply({layers.batch()}),
      "unsupported",
      "Not implemented for Inverse");
  EXPECT_EQ(layers.ids(), before);
}

TEST(ParameterGradients, AStepChangesWhatTheNextCallSees) {
  TwoLayers layers;
  ParameterGradients gradients(layers.tree(), layers.loss());
  float last = layers.expected_loss();
  for (int step = 0; step < 3; ++step) {
    auto result = gradients.apply({layers.batch()});
    EXPECT_LE(result.loss.item<float>(), last);
    last = result.loss.item<float>() * 0.999f;
    size_t i = 0;
    layers.tree()([&](const std::string&, Parameter& parameter) {
      mx::array step =
          mx::multiply(mx::array(1e-3f), result.gradients[i++].gradient);
      parameter.set(
          {mx::subtract(parameter.value(), step), std::nullopt, std::nullopt});
    });
  }
}

TEST(ParameterGradients, ALossMayTakeGradientsOfTheSameParameters) {
  TwoLayers layers;
  ParameterGradients inner(layers.tree(), layers.loss());
  auto outer = [&](const Arrays& x) {
    Arrays squares;
    for (const auto& [name, gradient] : inner.apply(x).gradients) {
      squares.push_back(mx::sum(mx::square(gradient)));
    }
    return Arrays{mx::add(mx::add(squares[0], squares[1]), squares[2])};
  };
  auto before = layers.ids();
  auto result =
      ParameterGradients(layers.tree(), outer).apply({layers.batch()});
  EXPECT_EQ(layers.ids(), before);
  for (const auto& [name, gradient] : result.gradients) {
    EXPECT_GT(mx::max(mx::abs(gradient)).item<float>(), 0) << name;
  }
}

TEST(ParameterGradients, RefuseWhatCannotBeTrainedUnlessFrozen) {
  auto refuse = [](const std::function<void(TwoLayers&)>& change,
                   std::string_view text) {
    TwoLayers layers;
    change(layers);
    EXPECT_ERROR(
        ParameterGradients(layers.tree(), layers.loss())
            .apply({layers.batch()}),
        "invalid_request",
        text);
    auto constant_loss = [](const Arrays&) { return Arrays{mx::array(1.0f)}; };
    auto frozen = frozen_names(layers.tree(), {"second.weight"});
    auto result = ParameterGradients(layers.tree(), constant_loss, frozen)
                      .apply({layers.batch()});
    EXPECT_EQ(result.gradients.size(), 2u);
  };
  refuse(
      [](TwoLayers& layers) {
        auto parts = mx::quantize(mx::ones({8, 64}), 32, 4);
        layers.second.set(
            {parts[0], parts[1], parts[2]},
            QuantizationSpec{32, 4, "affine"});
      },
      "parameter 'second.weight' is quantized to 4 bits");
  refuse(
      [](TwoLayers& layers) {
        layers.second.set_packed(std::make_shared<FakePacked>());
      },
      "parameter 'second.weight' is packed");
  refuse(
      [](TwoLayers& layers) {
        layers.second.set({mx::array({1, 2}), std::nullopt, std::nullopt});
      },
      "parameter 'second.weight' is int32");
  refuse(
      [](TwoLayers& layers) { layers.second = Parameter(); },
      "parameter 'second.weight' was never set");
}

TEST(ParameterGradients, RefuseBrokenTreesAndFunctions) {
  TwoLayers layers;
  auto tree = layers.tree();
  auto twice = [&](const ParameterVisitor& visitor) {
    tree(visitor);
    visitor("tied.weight", layers.first);
  };
  auto same_name = [&](const ParameterVisitor& visitor) {
    tree(visitor);
    Parameter other;
    visitor("first.weight", other);
  };
  auto nothing = [](const ParameterVisitor&) {};
  auto refuse = [&](const ParameterTree& bad, std::string_view text) {
    EXPECT_ERROR(
        ParameterGradients(bad, layers.loss()).apply({layers.batch()}),
        "invalid_request",
        text);
  };
  refuse(twice, "parameter 'tied.weight' is twice in the tree");
  refuse(same_name, "parameter 'first.weight' is twice in the tree");
  refuse(nothing, "none of 0 parameters is left to train");
  EXPECT_ERROR(
      ParameterGradients(nullptr, layers.loss()),
      "invalid_request",
      "no parameter tree");
  EXPECT_ERROR(
      ParameterGradients(tree, nullptr),
      "invalid_request",
      "no loss function");
}

}  // namespace
}  // namespace mlxx
