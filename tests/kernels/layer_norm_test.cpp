#include "mlxx/kernels/layer_norm/layer_norm.h"

#include <gtest/gtest.h>

#include "mlxx/kernels/activation/activation.h"
#include "tests/kernels/relative_error.h"

namespace mlxx::kernels {
namespace {

Selection chosen(bool fallback) {
  Selection selection = select_best();
  selection.fallback = fallback;
  return selection;
}

TEST(LayerNormKernel, AgreesWithMlxOnRowsOfAnyWidth) {
  for (int n : {1, 5, 16, 33, 384, 1000}) {
    for (int rows : {1, 3, 70}) {
      mx::array x = mx::add(normal({rows, n}, 1), mx::array(3.0f));
      mx::array weight = normal({n}, 2);
      std::optional<mx::array> bias = normal({n}, 3);
      for (bool has_bias : {false, true}) {
        auto used = has_bias ? bias : std::nullopt;
        mx::array got = layer_norm(x, weight, used, 1e-5f, chosen(false));
        mx::array wanted = layer_norm(x, weight, used, 1e-5f, chosen(true));
        // A row of one number is its mean: only the bias is left.
        if (n == 1 && !has_bias) {
          EXPECT_LT(mx::max(mx::abs(got)).item<float>(), 1e-3);
        } else {
          EXPECT_LT(relative_error(got, wanted), 2e-6) << rows << " x " << n;
        }
      }
    }
  }
}

TEST(LayerNormKernel, ARowsBitsDoNotDependOnTheOthers) {
  mx::array x = normal({64, 100}, 1);
  mx::array weight = normal({100}, 2);
  mx::array all = layer_norm(x, weight, std::nullopt, 1e-5f, chosen(false));
  for (int i : {0, 13, 63}) {
    mx::array row = mx::slice(x, {i, 0}, {i + 1, 100});
    EXPECT_TRUE(same_bits(
        layer_norm(row, weight, std::nullopt, 1e-5f, chosen(false)),
        mx::slice(all, {i, 0}, {i + 1, 100})));
  }
}

TEST(LayerNormKernel, HalfPrecisionStaysWithMlx) {
  mx::array x = mx::astype(normal({4, 32}, 1), mx::bfloat16);
  mx::array weight = mx::astype(normal({32}, 2), mx::bfloat16);
  EXPECT_TRUE(same_bits(
      layer_norm(x, weight, std::nullopt, 1e-5f, chosen(false)),
      mx::fast::layer_norm(x, weight, std::nullopt, 1e-5f)));
}

TEST(LayerNormKernel, GradientsAreThoseOfThePlainOperations) {
  auto gradient = [&](bool fallback) {
    auto loss = [&](const std::vector<mx::array>& x) {
      return mx::sum(
          mx::square(layer_norm(x[0], x[1], x[2], 1e-5f, chosen(fallback))));
    };
    return mx::grad(loss, std::vector<int>{0, 1, 2})(
        {normal({3, 24}, 1), normal({24}, 2), normal({24}, 3)});
  };
  auto own = gradient(false);
  auto plain = gradient(true);
  for (int i = 0; i < 3; ++i) {
    EXPECT_LT(relative_error(own[i], plain[i]), 1e-5) << i;
  }
}

constexpr Activation kActivations[] = {
    Activation::silu,
    Activation::gelu,
    Activation::gelu_tanh,
    Activation::relu_squared};

// Also where the result is small beside the input.
TEST(ActivationKernel, AgreesWithMlx) {
  mx::array x = mx::reshape(mx::linspace(-9, 9, 1001), {7, 143});
  mx::array up = normal({7, 143}, 4);
  for (Activation activation : kActivations) {
    mx::array got = activate(x, activation, chosen(false));
    mx::array wanted = activate(x, activation, chosen(true));
    EXPECT_LT(mx::max(mx::abs(mx::subtract(got, wanted))).item<float>(), 2e-6)
        << to_string(activation);
    EXPECT_LT(relative_error(got, wanted), 5e-7) << to_string(activation);
    EXPECT_LT(
        relative_error(
            gated_activation(x, up, activation, chosen(false)),
            gated_activation(x, up, activation, chosen(true))),
        5e-7)
        << to_string(activation);
  }
}

TEST(ActivationKernel, GradientsAreThoseOfThePlainOperations) {
  for (Activation activation : kActivations) {
    auto gradient = [&](bool fallback) {
      auto loss = [&](const std::vector<mx::array>& x) {
        return mx::sum(mx::square(
            gated_activation(x[0], x[1], activation, chosen(fallback))));
      };
      return mx::grad(loss, std::vector<int>{0, 1})(
          {normal({3, 24}, 1), normal({3, 24}, 2)});
    };
    auto own = gradient(false);
    auto plain = gradient(true);
    EXPECT_LT(relative_error(own[0], plain[0]), 1e-5);
    EXPECT_LT(relative_error(own[1], plain[1]), 1e-5);
  }
}

}  // namespace
}  // namespace mlxx::kernels
