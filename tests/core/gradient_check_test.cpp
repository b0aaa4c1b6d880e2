// The checker accepts right gradients and rejects wrong ones.
#include "tests/core/gradient_check.h"

#include "mlxx/core/custom_vjp.h"
#include "tests/kernels/relative_error.h"

namespace mlxx {
namespace {

using Arrays = std::vector<mx::array>;

Arrays product(const Arrays& x) {
  return {mx::tanh(mx::matmul(x[0], x[1])), mx::sum(mx::square(x[0]), -1)};
}

Arrays product_gradient(const Arrays& x, const Arrays& c, const Arrays& y) {
  mx::array slope = mx::subtract(mx::array(1.0f), mx::square(y[0]));
  mx::array inner = mx::multiply(c[0], slope);
  mx::array rows = mx::expand_dims(c[1], -1);
  mx::array of_squares =
      mx::multiply(mx::multiply(mx::array(2.0f), x[0]), rows);
  return {
      mx::add(mx::matmul(inner, mx::transpose(x[1])), of_squares),
      mx::matmul(mx::transpose(x[0]), inner)};
}

// `product` with a gradient that `change` has spoilt.
ArrayFunction product_with(const std::function<void(Arrays&)>& change) {
  return custom_vjp(
      "product",
      product,
      [change](const Arrays& x, const Arrays& c, const Arrays& y) {
        Arrays gradient = product_gradient(x, c, y);
        change(gradient);
        return gradient;
      });
}

const Arrays kArguments = {
    normal({6, 8}, 1),
    mx::multiply(normal({8, 5}, 2), mx::array(0.3f))};

TEST(GradientCheck, AcceptsRightGradients) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    EXPECT_TRUE(check_gradient(product, kArguments, {.seed = seed})) << seed;
  }
  EXPECT_TRUE(check_gradient(product_with([](Arrays&) {}), kArguments));
  // Sizes far from 1, and the accuracy of float64.
  for (float size : {1e-4f, 1e4f}) {
    auto scaled = [size](const Arrays& x) {
      mx::array inverse(1 / size);
      return product({mx::multiply(x[0], inverse), x[1]});
    };
    Arrays arguments = {
        mx::multiply(kArguments[0], mx::array(size)),
        kArguments[1]};
    EXPECT_TRUE(check_gradient(scaled, arguments)) << size;
  }
  mx::StreamContext cpu(mx::Device::cpu);
  Arrays wide;
  for (const auto& x : kArguments) {
    wide.push_back(mx::astype(x, mx::float64));
  }
  EXPECT_TRUE(check_gradient(product, wide, {.tolerance = 1e-7}));
}

TEST(GradientCheck, AcceptsGradientsOfManyKinds) {
  auto accept = [](const ArrayFunction& function, const Arrays& arguments) {
    EXPECT_TRUE(check_gradient(function, arguments));
  };
  mx::array x = normal({4, 33}, 3);
  accept([](const Arrays& x) { return Arrays{mx::exp(x[0])}; }, {x});
  accept([](const Arrays& x) { return Arrays{mx::softmax(x[0], -1)}; }, {x});
  accept([](const Arrays& x) { return Arrays{mx::logsumexp(x[0], -1)}; }, {x});
  accept(
      [](const Arrays& x) { return Arrays{mx::sum(mx::square(x[0]))}; },
      {x});
  accept(
      [](const Arrays& x) { return Arrays{mx::rsqrt(mx::exp(x[0]))}; },
      {mx::array(0.7f)});
  // A gradient of zero, up to rounding: the softmax sums to 1.
  accept(
      [](const Arrays& x) {
        return Arrays{mx::sum(mx::softmax(x[0], -1), -1)};
      },
      {x});
  accept(
      [](const Arrays& x) { return Arrays{mx::sum(mx::square(x[0]))}; },
      {mx::zeros({5})});
}

// Each is wrong in a way that a kernel's gradient has been.
TEST(GradientCheck, RejectsWrongGradients) {
  struct Wrong {
    const char* what;
    std::function<void(Arrays&)> change;
  };
  auto scale = [](mx::array& x, float factor) {
    x = mx::multiply(x, mx::array(factor));
  };
  auto replace_row = [](mx::array& x, int row) {
    mx::array zeros = mx::zeros({1, x.shape(1)});
    x = mx::slice_update(
        x,
        zeros,
        mx::Shape{row, 0},
        mx::Shape{row + 1, x.shape(1)});
  };
  const Wrong cases[] = {
      {"1 % too large", [&](Arrays& g) { scale(g[0], 1.01f); }},
      {"of the other sign", [&](Arrays& g) { scale(g[1], -1); }},
      {"twice", [&](Arrays& g) { scale(g[1], 2); }},
      {"absent", [&](Arrays& g) { scale(g[1], 0); }},
      {"without one row", [&](Arrays& g) { replace_row(g[0], 5); }},
      {"with rows reversed",
       [&](Arrays& g) { g[1] = mx::slice(g[1], {7, 0}, {-9, 5}, {-1, 1}); }},
      {"one element off",
       [&](Arrays& g) {
         mx::array element = mx::slice(g[0], {2, 3}, {3, 4});
         element = mx::add(element, mx::array(0.5f));
         g[0] =
             mx::slice_update(g[0], element, mx::Shape{2, 3}, mx::Shape{3, 4});
       }},
      {"not a number",
       [&](Arrays& g) { g[0] = mx::full({6, 8}, std::nanf("")); }},
  };
  for (const auto& [what, change] : cases) {
    for (uint64_t seed = 1; seed <= 10; ++seed) {
      auto result =
          check_gradient(product_with(change), kArguments, {.seed = seed});
      EXPECT_FALSE(result) << what << ", " << seed;
      std::string_view message = result.message();
      EXPECT_NE(message.find("the gradient gives"), message.npos) << message;
    }
  }
}

// An output whose gradient was forgotten, and one that depends on a constant.
TEST(GradientCheck, RejectsForgottenParts) {
  auto forgets = custom_vjp(
      "product",
      product,
      [](const Arrays& x, const Arrays& c, const Arrays& y) {
        return product_gradient(x, {c[0], mx::zeros_like(c[1])}, y);
      });
  EXPECT_FALSE(check_gradient(forgets, kArguments));
  EXPECT_TRUE(check_gradient(forgets, kArguments, {.arguments = {1}}));
  auto stopped = [](const Arrays& x) {
    return Arrays{mx::multiply(x[0], mx::stop_gradient(x[0]))};
  };
  EXPECT_FALSE(check_gradient(stopped, {kArguments[0]}));
}

TEST(GradientCheck, SaysWhenItCannotTell) {
  auto fails_with = [](const testing::AssertionResult& result,
                       std::string_view text) {
    EXPECT_FALSE(result);
    EXPECT_NE(std::string_view(result.message()).find(text), text.npos)
        << result.message();
  };
  auto rounded = [](const Arrays& x) {
    mx::array half = mx::astype(x[0], mx::bfloat16);
    return Arrays{mx::astype(mx::square(half), mx::float32)};
  };
  fails_with(check_gradient(rounded, {kArguments[0]}), "inconclusive");
  auto square = [](const Arrays& x) { return Arrays{mx::square(x[0])}; };
  mx::array half = mx::astype(kArguments[0], mx::float16);
  auto narrowed = [](const Arrays& x) {
    return Arrays{mx::astype(mx::square(x[0]), mx::float16)};
  };
  fails_with(check_gradient(narrowed, {kArguments[0]}), "output of float16");
  fails_with(check_gradient(square, {half}), "argument of float16");
  auto throwing = [](const Arrays&) -> Arrays {
    throw std::runtime_error("broken kernel");
  };
  fails_with(check_gradient(throwing, {kArguments[0]}), "broken kernel");
  // A check of nothing would always pass.
  fails_with(check_gradient(square, {}), "nothing to check");
  fails_with(
      check_gradient(square, {kArguments[0]}, {.directions = 0}),
      "nothing to check");
  EXPECT_FALSE(check_gradient(square, {kArguments[0]}, {.arguments = {1}}));
}

}  // namespace
}  // namespace mlxx
