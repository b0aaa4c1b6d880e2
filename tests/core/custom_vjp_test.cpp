#include "mlxx/core/custom_vjp.h"

#include <gtest/gtest.h>

#include "mlxx/core/autograd.h"
#include "tests/core/error_of.h"
#include "tests/kernels/relative_error.h"

namespace mlxx {
namespace {

using Arrays = std::vector<mx::array>;

const mx::array kA = mx::array({1.0f, 2.0f});
const mx::array kB = mx::array({3.0f, 5.0f});

// Two outputs: a * b and sum(a).
Arrays forward(const Arrays& x) {
  return {mx::multiply(x[0], x[1]), mx::sum(x[0])};
}

TEST(CustomVjp, GetsPrimalsCotangentsAndOutputs) {
  int calls = 0;
  auto function = custom_vjp(
      "op",
      forward,
      [&](const Arrays& primals,
          const Arrays& cotangents,
          const Arrays& outputs) {
        ++calls;
        EXPECT_EQ(primals.size(), 2u);
        EXPECT_EQ(cotangents.size(), 2u);
        EXPECT_EQ(outputs.size(), 2u);
        EXPECT_TRUE(same_bits(primals[0], kA));
        EXPECT_TRUE(same_bits(primals[1], kB));
        EXPECT_TRUE(same_bits(cotangents[0], mx::array({10.0f, 100.0f})));
        EXPECT_TRUE(same_bits(cotangents[1], mx::array(7.0f)));
        EXPECT_TRUE(same_bits(outputs[0], mx::array({3.0f, 10.0f})));
        EXPECT_TRUE(same_bits(outputs[1], mx::array(3.0f)));
        return Arrays{mx::array({-1.0f, -2.0f}), mx::array({-3.0f, -4.0f})};
      });
  auto plain = function({kA, kB});
  EXPECT_TRUE(same_bits(plain[0], mx::array({3.0f, 10.0f})));
  EXPECT_EQ(calls, 0);

  auto result =
      Vjp(function, 2)
          .apply({kA, kB}, {mx::array({10.0f, 100.0f}), mx::array(7.0f)});
  EXPECT_EQ(calls, 1);
  EXPECT_TRUE(same_bits(result.outputs[1], mx::array(3.0f)));
  EXPECT_TRUE(same_bits(result.cotangents[0], mx::array({-1.0f, -2.0f})));
  EXPECT_TRUE(same_bits(result.cotangents[1], mx::array({-3.0f, -4.0f})));
}

TEST(CustomVjp, AnUnusedOutputHasAZeroCotangent) {
  auto function = custom_vjp(
      "op",
      forward,
      [&](const Arrays&, const Arrays& cotangents, const Arrays&) {
        EXPECT_TRUE(same_bits(cotangents[1], mx::array(0.0f)));
        return Arrays{cotangents[0], cotangents[0]};
      });
  auto loss = [&](const Arrays& x) { return Arrays{mx::sum(function(x)[0])}; };
  auto result = ValueAndGrad(loss, {1}).apply({kA, kB});
  EXPECT_TRUE(same_bits(result.gradients[0], mx::ones({2})));
}

// MLX reads past the list, or takes a cotangent of an output for one.
TEST(CustomVjp, RefusesCotangentsThatDoNotMatchThePrimals) {
  auto refuse = [](const Arrays& cotangents, std::string_view text) {
    auto function = custom_vjp(
        "attention",
        forward,
        [&](const Arrays&, const Arrays&, const Arrays&) {
          return cotangents;
        });
    auto loss = [&](const Arrays& x) {
      return Arrays{mx::sum(function(x)[0])};
    };
    for (int index : {0, 1}) {
      EXPECT_ERROR(
          ValueAndGrad(loss, {index}).apply({kA, kB}),
          "invalid_request",
          text);
    }
  };
  refuse({}, "[attention] the gradient returned 0 cotangents for 2 arguments");
  refuse({kA}, "returned 1 cotangents for 2 arguments");
  refuse({kA, kB, kA}, "returned 3 cotangents for 2 arguments");
  refuse(
      {kA, mx::array(1.0f)},
      "returned shape () for argument 1 of shape (2)");
  refuse({mx::ones({1, 2}), kB}, "shape (1, 2) for argument 0 of shape (2)");
}

TEST(CustomVjp, CotangentsTakeTheDtypeOfTheirPrimal) {
  auto function = custom_vjp(
      "op",
      [](const Arrays& x) { return Arrays{mx::multiply(x[0], x[1])}; },
      [](const Arrays& x, const Arrays&, const Arrays&) {
        return Arrays{mx::ones({2}), mx::zeros_like(x[1])};
      });
  for (mx::Dtype dtype : {mx::float16, mx::bfloat16}) {
    auto result = Vjp(function, 1)
                      .apply(
                          {mx::astype(kA, dtype), mx::astype(kB, dtype)},
                          {mx::ones({2}, dtype)});
    EXPECT_TRUE(same_bits(result.cotangents[0], mx::ones({2}, dtype)));
  }
}

TEST(CustomVjp, TakesIntegerPrimals) {
  mx::array ids({1, 1, 0});
  auto function = custom_vjp(
      "lookup",
      [](const Arrays& x) { return Arrays{mx::take(x[0], x[1])}; },
      [](const Arrays& x, const Arrays& cotangents, const Arrays&) {
        mx::array zeros = mx::zeros_like(x[0]);
        mx::array updates = mx::expand_dims(cotangents[0], 1);
        return Arrays{
            mx::scatter_add(zeros, x[1], updates, 0),
            mx::zeros_like(x[1])};
      });
  auto loss = [&](const Arrays& x) { return Arrays{mx::sum(function(x)[0])}; };
  auto result = ValueAndGrad(loss, {0}).apply({kA, ids});
  EXPECT_TRUE(same_bits(result.gradients[0], mx::array({1.0f, 2.0f})));
}

TEST(CustomVjp, RefusesWhatCannotBeDifferentiated) {
  auto gradient = [](const Arrays& x, const Arrays&, const Arrays&) {
    return x;
  };
  EXPECT_ERROR(
      custom_vjp("op", nullptr, gradient),
      "invalid_request",
      "[op] no forward function");
  EXPECT_ERROR(
      custom_vjp("op", forward, nullptr),
      "invalid_request",
      "[op] no gradient function");
  EXPECT_ERROR(
      custom_vjp("op", forward, gradient)({}),
      "invalid_request",
      "[op] called without arguments");
  auto nothing = [](const Arrays&) { return Arrays{}; };
  EXPECT_ERROR(
      custom_vjp("op", nothing, gradient)({kA}),
      "invalid_request",
      "[op] the function returned no arrays");
}

}  // namespace
}  // namespace mlxx
