#include "mlxx/core/autograd.h"

#include <gtest/gtest.h>

#include "tests/core/error_of.h"

namespace mlxx {
namespace {

using Arrays = std::vector<mx::array>;

mx::array vector3(float a, float b, float c) {
  return mx::array({a, b, c});
}

// sum(a * b^2 * c): gradients b^2 c, 2abc, ab^2.
Arrays product_loss(const Arrays& x) {
  return {mx::sum(mx::multiply(mx::multiply(x[0], mx::square(x[1])), x[2]))};
}

const Arrays kThree = {
    vector3(1, 2, 3),
    vector3(4, 5, 6),
    vector3(-1, 0.5f, 2)};

std::vector<float> numbers(const mx::array& x) {
  mx::array y = mx::contiguous(mx::astype(x, mx::float32));
  mx::eval(y);
  return {y.data<float>(), y.data<float>() + y.size()};
}

using Numbers = std::vector<float>;

TEST(ValueAndGrad, GivesOneGradientPerIndexInTheListsOrder) {
  Numbers of_a = {-16, 12.5f, 72};
  Numbers of_b = {-8, 10, 72};
  Numbers of_c = {16, 50, 108};
  auto all = ValueAndGrad(product_loss, {2, 0, 1}).apply(kThree);
  EXPECT_EQ(all.loss.item<float>(), -16 + 25 + 216);
  ASSERT_EQ(all.gradients.size(), 3u);
  EXPECT_EQ(numbers(all.gradients[0]), of_c);
  EXPECT_EQ(numbers(all.gradients[1]), of_a);
  EXPECT_EQ(numbers(all.gradients[2]), of_b);

  auto one = ValueAndGrad(product_loss, {1}).apply(kThree);
  ASSERT_EQ(one.gradients.size(), 1u);
  EXPECT_EQ(numbers(one.gradients[0]), of_b);
}

TEST(ValueAndGrad, IndependentAndStoppedArgumentsGetZeros) {
  auto loss = [](const Arrays& x) {
    return Arrays{mx::sum(mx::multiply(x[0], mx::stop_gradient(x[1])))};
  };
  auto result = ValueAndGrad(loss, {0, 1, 2}).apply(kThree);
  EXPECT_EQ(numbers(result.gradients[0]), (Numbers{4, 5, 6}));
  EXPECT_EQ(numbers(result.gradients[1]), (Numbers{0, 0, 0}));
  EXPECT_EQ(numbers(result.gradients[2]), (Numbers{0, 0, 0}));

  auto constant = [](const Arrays& x) {
    return Arrays{mx::stop_gradient(mx::sum(x[0]))};
  };
  auto stopped = ValueAndGrad(constant, {0}).apply(kThree);
  EXPECT_EQ(stopped.loss.item<float>(), 6);
  EXPECT_EQ(numbers(stopped.gradients[0]), (Numbers{0, 0, 0}));
}

TEST(ValueAndGrad, RefusesIndexListsThatMeanNothing) {
  auto refuse = [](std::vector<int> indices, std::string_view text) {
    EXPECT_ERROR(ValueAndGrad(product_loss, indices), "invalid_request", text);
  };
  refuse({}, "[value_and_grad] the list of argument indices is empty");
  refuse({0, -1}, "argument index -1 is negative");
  refuse({1, 0, 1}, "argument index 1 is listed twice");
  EXPECT_ERROR(ValueAndGrad(nullptr, {0}), "invalid_request", "no loss");
  EXPECT_ERROR(
      ValueAndGrad(product_loss, {0, 3}).apply(kThree),
      "invalid_request",
      "argument index 3 is past the 3 arguments");
}

// MLX takes the first of two outputs and ignores the other.
TEST(ValueAndGrad, RefusesAnythingButOneFloatingScalar) {
  auto refuse = [](const ArrayFunction& loss, std::string_view text) {
    EXPECT_ERROR(
        ValueAndGrad(loss, {0}).apply(kThree),
        "invalid_request",
        text);
  };
  auto total = [](const Arrays& x) { return mx::sum(x[0]); };
  refuse([](const Arrays&) { return Arrays{}; }, "exactly one array, found 0");
  refuse(
      [&](const Arrays& x) { return Arrays{total(x), total(x)}; },
      "exactly one array, found 2");
  refuse(
      [](const Arrays& x) { return Arrays{x[0]}; },
      "found float32 of shape (3)");
  refuse(
      [&](const Arrays& x) { return Arrays{mx::reshape(total(x), {1})}; },
      "found float32 of shape (1)");
  refuse(
      [&](const Arrays& x) { return Arrays{mx::astype(total(x), mx::int32)}; },
      "found int32 of shape ()");
  refuse(
      [&](const Arrays& x) {
        return Arrays{mx::astype(total(x), mx::complex64)};
      },
      "found complex64 of shape ()");
}

TEST(ValueAndGrad, RefusesIntegerArgumentsUnlessTheyAreNotDifferentiated) {
  mx::array ids({2, 0, 2});
  auto loss = [](const Arrays& x) {
    return Arrays{mx::sum(mx::take(x[0], x[1]))};
  };
  EXPECT_ERROR(
      ValueAndGrad(loss, {0, 1}).apply({kThree[0], ids}),
      "invalid_request",
      "argument 1 is int32, and only floating arrays have gradients");
  EXPECT_ERROR(
      ValueAndGrad(loss, {1}).apply({kThree[0], mx::array({true})}),
      "invalid_request",
      "argument 1 is bool");
  auto result = ValueAndGrad(loss, {0}).apply({kThree[0], ids});
  EXPECT_EQ(numbers(result.gradients[0]), (Numbers{1, 0, 2}));
}

TEST(ValueAndGrad, GradientsHaveTheirArgumentsDtype) {
  for (mx::Dtype dtype : {mx::float16, mx::bfloat16, mx::float32}) {
    Arrays arguments;
    for (const auto& x : kThree) {
      arguments.push_back(mx::astype(x, dtype));
    }
    auto loss = [](const Arrays& x) {
      mx::array wide = mx::astype(x[0], mx::float32);
      return product_loss({wide, x[1], x[2]});
    };
    auto result = ValueAndGrad(loss, {0, 1, 2}).apply(arguments);
    EXPECT_EQ(result.loss.item<float>(), 225);
    for (const auto& gradient : result.gradients) {
      EXPECT_EQ(gradient.dtype(), dtype);
    }
    EXPECT_EQ(numbers(result.gradients[1]), (Numbers{-8, 10, 72}));
  }
}

// A real loss of complex numbers: |z|^2, steepest along z.
TEST(ValueAndGrad, TakesComplexArguments) {
  mx::array z = mx::multiply(
      mx::array({1.0f, -2.0f}),
      mx::array(std::complex<float>(3, 4)));
  auto loss = [](const Arrays& x) {
    return Arrays{mx::sum(mx::square(mx::abs(x[0])))};
  };
  auto result = ValueAndGrad(loss, {0}).apply({z});
  EXPECT_EQ(result.loss.item<float>(), 125);
  EXPECT_EQ(result.gradients[0].dtype(), mx::complex64);
  mx::array expected = mx::multiply(mx::array(2.0f), z);
  EXPECT_TRUE(mx::allclose(
                  mx::abs(mx::subtract(result.gradients[0], expected)),
                  mx::zeros({2}),
                  0,
                  1e-5)
                  .item<bool>());
}

}  // namespace
}  // namespace mlxx
