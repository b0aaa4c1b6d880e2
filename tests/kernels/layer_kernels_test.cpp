// The functions of layer_kernels.h against double precision, for every
// instruction set.
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "mlxx/kernels/cpu_variants.h"

namespace mlxx::kernels {
namespace {

using Function = double (*)(double);

std::vector<float> inputs() {
  std::vector<float> x;
  for (double v = -13; v <= 13; v += 0.00917) {
    x.push_back(static_cast<float>(v));
  }
  for (float v : {0.0f, -0.0f, 1e-30f, -1e-6f, 1e-4f, 40.0f, 1e4f, 1e30f}) {
    x.push_back(v);
    x.push_back(-v);
  }
  return x;
}

void expect_activation(
    ActivationKernel LayerKernels::* kernel,
    Function exact,
    double bound) {
  auto x = inputs();
  std::vector<float> factor(x.size(), -0.5f);
  auto n = static_cast<int64_t>(x.size());
  for (InstructionSet set : available_instruction_sets()) {
    std::vector<float> y(x.size());
    std::vector<float> times(x.size());
    (layer_kernels(set).*kernel)(x.data(), nullptr, n, y.data());
    (layer_kernels(set).*kernel)(x.data(), factor.data(), n, times.data());
    for (size_t i = 0; i < x.size(); ++i) {
      double expected = exact(x[i]);
      if (std::isinf(static_cast<float>(expected))) {
        ASSERT_EQ(y[i], static_cast<float>(expected));
        continue;
      }
      // Results smaller than the smallest normal number may be anything small.
      double room = std::abs(expected) * bound + 2e-36 * std::abs(x[i]) + 2e-38;
      ASSERT_NEAR(y[i], expected, room) << to_string(set) << " of " << x[i];
      ASSERT_EQ(times[i], y[i] * -0.5f) << to_string(set) << " of " << x[i];
    }
  }
}

TEST(LayerKernels, Activations) {
  expect_activation(
      &LayerKernels::silu,
      [](double x) { return x / (1 + std::exp(-x)); },
      5e-7);
  // The argument's own rounding grows with it in the left tail.
  expect_activation(
      &LayerKernels::gelu,
      [](double x) { return x / 2 * std::erfc(-x / std::sqrt(2.0)); },
      2e-5);
  expect_activation(
      &LayerKernels::gelu_tanh,
      [](double x) {
        double t = std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x);
        return x / (1 + std::exp(-2 * t));
      },
      3e-5);
  expect_activation(
      &LayerKernels::relu_squared,
      [](double x) { return x > 0 && x < 1e19 ? x * x
                         : x > 0              ? INFINITY
                                              : 0; },
      1e-7);
}

TEST(LayerKernels, GeluIsExactWhereItMatters) {
  for (InstructionSet set : available_instruction_sets()) {
    for (float x = -3; x < 12; x += 0.0137f) {
      float y = 0;
      layer_kernels(set).gelu(&x, nullptr, 1, &y);
      double expected = x / 2.0 * std::erfc(-double{x} / std::sqrt(2.0));
      ASSERT_NEAR(y, expected, 3e-7 * std::max(1.0, std::abs(expected)));
    }
  }
}

TEST(LayerKernels, Softcap) {
  for (InstructionSet set : available_instruction_sets()) {
    for (float cap : {0.5f, 30.0f, 50.0f}) {
      auto x = inputs();
      auto y = x;
      layer_kernels(set)
          .softcap(x.data(), cap, static_cast<int64_t>(x.size()), y.data());
      for (size_t i = 0; i < x.size(); ++i) {
        double expected = cap * std::tanh(double{x[i]} / cap);
        ASSERT_NEAR(y[i], expected, std::abs(expected) * 4e-7 + 1e-37)
            << to_string(set) << " of " << x[i];
      }
    }
  }
}

TEST(LayerKernels, LayerNormOfEveryWidth) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal(3.0f, 2.0f);
  for (int n : {1, 2, 7, 16, 31, 64, 100}) {
    std::vector<float> x(n);
    std::vector<float> weight(n);
    std::vector<float> bias(n);
    for (auto* v : {&x, &weight, &bias}) {
      for (float& number : *v) {
        number = normal(random);
      }
    }
    double mean = 0;
    double variance = 0;
    for (float v : x) {
      mean += double{v} / n;
    }
    for (float v : x) {
      variance += (v - mean) * (v - mean) / n;
    }
    for (InstructionSet set : available_instruction_sets()) {
      for (bool biased : {false, true}) {
        std::vector<float> y = x;  // in place
        layer_kernels(set).layer_norm(
            y.data(),
            weight.data(),
            biased ? bias.data() : nullptr,
            1e-5f,
            n,
            y.data());
        for (int i = 0; i < n; ++i) {
          double expected =
              (x[i] - mean) / std::sqrt(variance + 1e-5) * weight[i] +
              (biased ? bias[i] : 0);
          ASSERT_NEAR(y[i], expected, 1e-5) << to_string(set) << " " << n;
        }
      }
    }
  }
}

// Rows of every length and number; each row's sum is the same in any company.
TEST(LayerKernels, ProductsOfLowRank) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  auto numbers = [&](int count) {
    std::vector<float> all(static_cast<size_t>(count));
    for (float& one : all) {
      one = normal(random);
    }
    return all;
  };
  for (InstructionSet set : available_instruction_sets()) {
    const LayerKernels& kernels = layer_kernels(set);
    for (int n : {1, 7, 16, 31, 32, 64, 96, 200}) {
      for (int rows : {1, 3, 4, 8, 13}) {
        auto a = numbers(rows * n);
        auto x = numbers(n);
        std::vector<float> z(static_cast<size_t>(rows));
        kernels.dot_rows(a.data(), rows, x.data(), n, z.data());
        for (int r = 0; r < rows; ++r) {
          double expected = 0;
          for (int i = 0; i < n; ++i) {
            expected += double{a[r * n + i]} * x[i];
          }
          ASSERT_NEAR(z[r], expected, 1e-4) << to_string(set) << " " << n;
          float alone = 0;
          kernels.dot_rows(a.data() + r * n, 1, x.data(), n, &alone);
          ASSERT_EQ(z[r], alone) << to_string(set) << " " << n;
        }
        if (n % 16 == 0) {
          auto y = numbers(n);
          auto sum = y;
          kernels.add_rows(z.data(), rows, a.data(), n, sum.data());
          for (int i = 0; i < n; ++i) {
            double expected = y[i];
            for (int r = 0; r < rows; ++r) {
              expected += double{z[r]} * a[r * n + i];
            }
            ASSERT_NEAR(sum[i], expected, 1e-3) << to_string(set);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace mlxx::kernels
