// Transforms inside transforms, captured arrays, and a compiled function.
#include <gtest/gtest.h>

#include "mlxx/core/autograd.h"
#include "mlxx/core/compile.h"
#include "mlxx/core/compiled_function.h"
#include "mlxx/core/custom_vjp.h"

namespace mlxx {
namespace {

using Arrays = std::vector<mx::array>;

// Of x [n], sum(x^4): 4 x^3, 12 x^2.
Arrays fourth_powers(const Arrays& x) {
  return {mx::sum(mx::square(mx::square(x[0])))};
}

Arrays gradient_sum(const ArrayFunction& loss, const Arrays& x) {
  return {mx::sum(ValueAndGrad(loss, {0}).apply(x).gradients[0])};
}

void expect_equal(const mx::array& got, const mx::array& expected) {
  EXPECT_EQ(got.shape(), expected.shape());
  EXPECT_TRUE(mx::allclose(got, expected, 1e-6, 0).item<bool>())
      << mx::sum(got).item<float>() << " instead of "
      << mx::sum(expected).item<float>();
}

const mx::array kX = mx::array({1.0f, -2.0f, 3.0f});

TEST(AutogradNesting, TheGradientOfAGradient) {
  auto second = [](const Arrays& x) { return gradient_sum(fourth_powers, x); };
  auto result = ValueAndGrad(second, {0}).apply({kX});
  EXPECT_EQ(result.loss.item<float>(), 4 * (1 - 8 + 27));
  expect_equal(result.gradients[0], mx::array({12.0f, 48.0f, 108.0f}));

  auto third = [&](const Arrays& x) { return gradient_sum(second, x); };
  expect_equal(
      ValueAndGrad(third, {0}).apply({kX}).gradients[0],
      mx::array({24.0f, -48.0f, 72.0f}));
}

TEST(AutogradNesting, AVjpInsideALoss) {
  auto loss = [](const Arrays& x) {
    auto square = [](const Arrays& y) { return Arrays{mx::square(y[0])}; };
    // Pulls x back along itself: 2x * x.
    auto result = Vjp(square, 1).apply({x[0]}, {x[0]});
    return Arrays{mx::sum(result.cotangents[0])};
  };
  auto result = ValueAndGrad(loss, {0}).apply({kX});
  EXPECT_EQ(result.loss.item<float>(), 28);
  expect_equal(result.gradients[0], mx::array({4.0f, -8.0f, 12.0f}));
}

// An inner transform over one thing, of a loss that captures the outer one's.
TEST(AutogradNesting, AnOuterTracerCapturedInside) {
  auto outer = [](const Arrays& w) {
    auto inner = [&](const Arrays& x) {
      return Arrays{mx::sum(mx::multiply(w[0], mx::square(x[0])))};
    };
    // d inner / dx = 2 w x
    return gradient_sum(inner, {kX});
  };
  auto result = ValueAndGrad(outer, {0}).apply({mx::full({3}, 5.0f)});
  EXPECT_EQ(result.loss.item<float>(), 20);
  expect_equal(result.gradients[0], mx::array({2.0f, -4.0f, 6.0f}));
}

TEST(AutogradNesting, CapturedArraysAreConstants) {
  mx::array lazy = mx::exp(kX);
  mx::array evaluated = mx::array({2.0f, 2.0f, 2.0f});
  auto loss = [&](const Arrays& x) {
    return Arrays{mx::sum(mx::multiply(mx::multiply(x[0], lazy), evaluated))};
  };
  ValueAndGrad gradient(loss, {0});
  for (int i = 0; i < 2; ++i) {
    auto result = gradient.apply({kX});
    expect_equal(
        result.gradients[0],
        mx::multiply(mx::array(2.0f), mx::exp(kX)));
    EXPECT_FALSE(lazy.is_tracer());
  }
}

// Evaluating what is traced is allowed while gradients are taken.
TEST(AutogradNesting, TheLossMayLookAtItsValues) {
  auto loss = [](const Arrays& x) {
    mx::array total = mx::sum(x[0]);
    float sign = total.item<float>() > 0 ? 1.0f : -1.0f;
    return Arrays{mx::multiply(total, mx::array(sign))};
  };
  ValueAndGrad gradient(loss, {0});
  for (float sign : {1.0f, -1.0f}) {
    mx::array x = mx::multiply(kX, mx::array(sign));
    auto result = gradient.apply({x});
    EXPECT_EQ(result.loss.item<float>(), 2);
    expect_equal(result.gradients[0], mx::full({3}, sign));
  }
}

TEST(AutogradNesting, InsideACompiledFunction) {
  set_compile_mode("no_fuse");
  ValueAndGrad gradient(fourth_powers, {0});
  CompiledFunction step([&](const Arrays& x) {
    auto result = gradient.apply(x);
    return Arrays{result.loss, result.gradients[0]};
  });
  for (int size : {1, 5, 3}) {
    mx::array x = mx::add(mx::arange(size, mx::float32), mx::array(1.0f));
    mx::array cube = mx::multiply(x, mx::square(x));
    expect_equal(step({x})[1], mx::multiply(mx::array(4.0f), cube));
  }
  EXPECT_LE(step.trace_count(), 1);  // 0 where MLX cannot compile
}

TEST(AutogradNesting, ThroughACompiledFunction) {
  set_compile_mode("no_fuse");
  CompiledFunction square(
      [](const Arrays& x) { return Arrays{mx::square(x[0])}; });
  auto loss = [&](const Arrays& x) {
    return Arrays{mx::sum(square(square(x))[0])};
  };
  ValueAndGrad gradient(loss, {0});
  for (int i = 0; i < 2; ++i) {
    square({kX});
    expect_equal(
        gradient.apply({kX}).gradients[0],
        mx::array({4.0f, -32.0f, 108.0f}));
  }
}

TEST(AutogradNesting, TheSecondGradientOfACustomOne) {
  auto square = custom_vjp(
      "square",
      [](const Arrays& x) { return Arrays{mx::square(x[0])}; },
      [](const Arrays& x, const Arrays& cotangents, const Arrays&) {
        mx::array twice = mx::multiply(mx::array(2.0f), x[0]);
        return Arrays{mx::multiply(cotangents[0], twice)};
      });
  auto loss = [&](const Arrays& x) {
    return Arrays{mx::sum(square({square(x)[0]})[0])};
  };
  auto second = [&](const Arrays& x) { return gradient_sum(loss, x); };
  expect_equal(
      ValueAndGrad(second, {0}).apply({kX}).gradients[0],
      mx::array({12.0f, 48.0f, 108.0f}));
}

}  // namespace
}  // namespace mlxx
