#include "mlxx/nn/norm.h"

#include <gtest/gtest.h>

#include "tests/kernels/relative_error.h"

namespace mlxx::nn {
namespace {

void set_all(auto& module, const mx::array& weight, const mx::array& bias) {
  module.visit("m", [&](const std::string& name, Parameter& parameter) {
    parameter.set(
        {name == "m.bias" ? bias : weight, std::nullopt, std::nullopt});
  });
}

TEST(RmsNorm, MatchesTheFormula) {
  Norm norm(32, {.eps = 1e-5f});
  mx::array weight = normal({32}, 1);
  set_all(norm, weight, weight);
  mx::array x = normal({2, 3, 32}, 2);
  mx::array mean = mx::mean(mx::square(x), -1, true);
  mx::array expected = mx::multiply(
      mx::multiply(x, mx::rsqrt(mx::add(mean, mx::array(1e-5f)))),
      weight);
  EXPECT_LT(relative_error(norm(x), expected), 1e-6);
}

// The square of 7e4 does not fit float16, nor does a sum of squares of 2e2.
TEST(RmsNorm, LargeHalfPrecisionActivationsStayFinite) {
  Norm norm(64, {.eps = 1e-5f});
  for (auto dtype : {mx::float16, mx::bfloat16}) {
    mx::array ones = mx::ones({64}, dtype);
    set_all(norm, ones, ones);
    mx::array x = mx::full({1, 64}, 6e4f, dtype);
    mx::array y = mx::astype(norm(x), mx::float32);
    EXPECT_NEAR(mx::max(y).item<float>(), 1.0f, 0.01f);
    EXPECT_NEAR(mx::min(y).item<float>(), 1.0f, 0.01f);
  }
}

TEST(LayerNorm, MatchesTheFormulaWithAndWithoutBias) {
  mx::array weight = normal({32}, 1);
  mx::array bias = normal({32}, 2);
  mx::array x = normal({2, 3, 32}, 3);
  mx::array centred = mx::subtract(x, mx::mean(x, -1, true));
  mx::array scaled = mx::multiply(
      mx::multiply(
          centred,
          mx::rsqrt(mx::add(mx::var(x, -1, true), mx::array(1e-5f)))),
      weight);
  Norm plain(32, {.kind = NormSpec::Kind::layer, .eps = 1e-5f});
  set_all(plain, weight, bias);
  EXPECT_LT(relative_error(plain(x), scaled), 1e-5);
  Norm biased(32, {.kind = NormSpec::Kind::layer, .eps = 1e-5f, .bias = true});
  set_all(biased, weight, bias);
  EXPECT_LT(relative_error(biased(x), mx::add(scaled, bias)), 1e-5);
}

}  // namespace
}  // namespace mlxx::nn
