#include <gtest/gtest.h>

#include "mlxx/core/autograd.h"
#include "tests/core/error_of.h"

namespace mlxx {
namespace {

using Arrays = std::vector<mx::array>;

::testing::AssertionResult equals(
    const mx::array& got,
    const mx::array& expected) {
  if (got.shape() == expected.shape() && got.dtype() == expected.dtype() &&
      mx::array_equal(got, expected).item<bool>()) {
    return ::testing::AssertionSuccess();
  }
  std::ostringstream text;
  text << got << " instead of " << expected;
  return ::testing::AssertionFailure() << text.str();
}

const Arrays kPrimals = {
    mx::array({1.0f, 2.0f}),
    mx::array({3.0f, 5.0f}),
    mx::array({7.0f, 11.0f})};
const mx::array kFirst = mx::array({10.0f, 100.0f});
const mx::array kSecond = mx::array(1000.0f);

// Two outputs of the first two primals.
Arrays product_and_sum(const Arrays& x) {
  return {mx::multiply(x[0], x[1]), mx::sum(x[0])};
}

TEST(Vjp, GivesOutputsAndACotangentForEveryPrimal) {
  auto result = Vjp(product_and_sum, 2).apply(kPrimals, {kFirst, kSecond});
  ASSERT_EQ(result.outputs.size(), 2u);
  EXPECT_TRUE(equals(result.outputs[0], mx::array({3.0f, 10.0f})));
  EXPECT_TRUE(equals(result.outputs[1], mx::array(3.0f)));
  ASSERT_EQ(result.cotangents.size(), 3u);
  EXPECT_TRUE(equals(result.cotangents[0], mx::array({1030.0f, 1500.0f})));
  EXPECT_TRUE(equals(result.cotangents[1], mx::array({10.0f, 200.0f})));
  EXPECT_TRUE(equals(result.cotangents[2], mx::zeros({2})));
}

// MLX gives the first cotangent to the second output here.
TEST(Vjp, AStoppedOutputKeepsItsCotangent) {
  auto function = [](const Arrays& x) {
    return Arrays{mx::stop_gradient(x[0]), mx::multiply(x[0], x[1])};
  };
  auto result = Vjp(function, 2)
                    .apply(
                        {kPrimals[0], kPrimals[1]},
                        {mx::array({-1.0f, -1.0f}), kFirst});
  EXPECT_TRUE(equals(result.cotangents[0], mx::array({30.0f, 500.0f})));
  EXPECT_TRUE(equals(result.cotangents[1], mx::array({10.0f, 200.0f})));
}

// MLX drops the second cotangent here.
TEST(Vjp, OneArrayAsTwoOutputsAddsBothCotangents) {
  auto function = [](const Arrays& x) {
    mx::array y = mx::square(x[0]);
    return Arrays{y, y, x[0]};
  };
  auto result =
      Vjp(function, 3)
          .apply(
              {kPrimals[0]},
              {kFirst, mx::array({1.0f, 1.0f}), mx::array({0.5f, 0.5f})});
  EXPECT_TRUE(equals(result.cotangents[0], mx::array({22.5f, 404.5f})));
}

TEST(Vjp, CotangentsTakeTheDtypeOfTheirOutput) {
  auto function = [](const Arrays& x) { return Arrays{mx::square(x[0])}; };
  for (mx::Dtype dtype : {mx::float16, mx::bfloat16, mx::float32}) {
    mx::array x = mx::astype(kPrimals[0], dtype);
    for (mx::Dtype given : {mx::float32, mx::bfloat16, mx::int32}) {
      auto result = Vjp(function, 1).apply({x}, {mx::astype(kFirst, given)});
      mx::array expected = mx::astype(mx::array({20.0f, 400.0f}), dtype);
      EXPECT_TRUE(equals(result.cotangents[0], expected));
    }
  }
}

TEST(Vjp, RefusesWhatDoesNotMatch) {
  Vjp vjp(product_and_sum, 2);
  auto refuse = [&](const Arrays& cotangents, std::string_view text) {
    EXPECT_ERROR(vjp.apply(kPrimals, cotangents), "invalid_request", text);
  };
  refuse({kFirst}, "[vjp] 1 cotangents for 2 outputs");
  refuse({kFirst, kSecond, kSecond}, "3 cotangents for 2 outputs");
  refuse({kSecond, kSecond}, "cotangent 0 has shape (), its output (2)");
  refuse({kFirst, kFirst}, "cotangent 1 has shape (2), its output ()");
  refuse(
      {mx::astype(kFirst, mx::complex64), kSecond},
      "cotangent 0 is complex, its output float32");

  EXPECT_ERROR(Vjp(product_and_sum, 0), "invalid_request", "at least 1, is 0");
  EXPECT_ERROR(Vjp(nullptr, 1), "invalid_request", "no function");
  EXPECT_ERROR(
      Vjp(product_and_sum, 1).apply(kPrimals, {kFirst}),
      "invalid_request",
      "the function returned 2 arrays instead of 1");
  EXPECT_ERROR(
      Vjp(product_and_sum, 3).apply(kPrimals, {kFirst, kSecond, kFirst}),
      "invalid_request",
      "the function returned 2 arrays instead of 3");
  EXPECT_ERROR(
      vjp.apply({}, {kFirst, kSecond}),
      "invalid_request",
      "no arguments");
  EXPECT_ERROR(
      vjp.apply({kPrimals[0], mx::array({1, 2})}, {kFirst, kSecond}),
      "invalid_request",
      "argument 1 is int32");
  auto order = [](const Arrays& x) { return Arrays{mx::argsort(x[0])}; };
  EXPECT_ERROR(
      Vjp(order, 1).apply({kPrimals[0]}, {kFirst}),
      "invalid_request",
      "output 0 is uint32");
}

// What Vjp is for: each part of a network by itself, the last one first.
TEST(Vjp, SegmentsGiveTheGradientOfTheWhole) {
  auto weight = [](uint64_t seed) {
    return mx::random::normal({4, 4}, mx::float32, mx::random::key(seed));
  };
  Arrays weights = {weight(1), weight(2), weight(3)};
  mx::array x = weight(4);
  auto segment = [](const Arrays& a) {
    return Arrays{mx::tanh(mx::matmul(a[0], a[1]))};
  };
  auto whole = [&](const Arrays& w) {
    mx::array h = x;
    for (const auto& each : w) {
      h = segment({h, each})[0];
    }
    return Arrays{mx::sum(mx::square(h))};
  };
  auto expected = ValueAndGrad(whole, {0, 1, 2}).apply(weights);

  Arrays inputs = {x};
  for (const auto& each : weights) {
    inputs.push_back(segment({inputs.back(), each})[0]);
  }
  auto loss = [](const Arrays& h) { return Arrays{mx::sum(mx::square(h[0]))}; };
  mx::array cotangent = ValueAndGrad(loss, {0}).apply({inputs[3]}).gradients[0];
  Vjp backward(segment, 1);
  for (int i = 2; i >= 0; --i) {
    auto result = backward.apply({inputs[i], weights[i]}, {cotangent});
    EXPECT_TRUE(equals(result.cotangents[1], expected.gradients[i])) << i;
    cotangent = result.cotangents[0];
  }
}

}  // namespace
}  // namespace mlxx
