#include "mlxx/core/leading_view.h"

#include <gtest/gtest.h>

#include "error_of.h"
#include "mlxx/core/compiled_function.h"

namespace mlxx {
namespace {

// As mx::slice makes it, to the flags that kernels look at.
void expect_slice(const mx::array& a, int axis, int n) {
  mx::Shape start(a.ndim(), 0);
  mx::Shape stop = a.shape();
  stop[axis] = n;
  mx::array expected = mx::slice(a, start, stop);
  mx::array view = leading_view(a, axis, length_only(n));
  mx::eval(expected, view);
  ASSERT_EQ(view.shape(), expected.shape());
  EXPECT_TRUE(mx::array_equal(view, expected).item<bool>());
  EXPECT_EQ(view.strides(), expected.strides());
  EXPECT_EQ(view.data_size(), expected.data_size());
  EXPECT_EQ(view.flags().contiguous, expected.flags().contiguous);
  EXPECT_EQ(view.flags().row_contiguous, expected.flags().row_contiguous);
  EXPECT_EQ(view.flags().col_contiguous, expected.flags().col_contiguous);
  EXPECT_EQ(view.data<float>(), expected.data<float>());
}

TEST(LeadingView, IsTheSameAsASlice) {
  auto numbers = [](mx::Shape shape) {
    int count = 1;
    for (int n : shape) {
      count *= n;
    }
    mx::array a = mx::reshape(mx::arange(count, mx::float32), shape);
    mx::eval(a);
    return a;
  };
  for (const mx::array& a :
       {numbers({1, 2, 8, 4}),
        numbers({1, 1, 8, 4}),
        numbers({3, 2, 8, 1}),
        numbers({1, 1, 8, 1}),
        mx::transpose(numbers({4, 8, 2, 3}), {3, 2, 1, 0}),
        mx::broadcast_to(numbers({1, 2, 1, 4}), {3, 2, 8, 4})}) {
    for (int n : {1, 3, 7, 8}) {
      expect_slice(a, 2, n);
    }
  }
  expect_slice(numbers({6}), 0, 4);
}

TEST(LeadingView, OneGraphServesEveryLength) {
  CompiledFunction squares([](const std::vector<mx::array>& inputs) {
    return std::vector{mx::square(leading_view(inputs[0], 0, inputs[1]))};
  });
  mx::array a = mx::reshape(mx::arange(20, mx::float32), {10, 2});
  for (int n : {4, 1, 3, 10, 9}) {
    mx::array part = squares({a, length_only(n)})[0];
    ASSERT_EQ(part.shape(), (mx::Shape{n, 2}));
    mx::array expected = mx::square(mx::slice(a, {0, 0}, {n, 2}));
    EXPECT_TRUE(mx::array_equal(part, expected).item<bool>());
  }
  EXPECT_EQ(squares.trace_count(), 1);
}

TEST(LeadingView, ImpossibleLengthsAreRefused) {
  mx::array a = mx::ones({2, 3});
  EXPECT_ERROR(
      leading_view(a, 1, length_only(4)),
      "internal",
      "cannot take the first 4 of 3 along axis 1");
  EXPECT_ERROR(
      leading_view(a, 1, mx::ones({0})),
      "internal",
      "the first 0 of 3");
  EXPECT_ERROR(leading_view(a, 1, mx::ones({1, 1})), "internal", "first 0");
  EXPECT_ERROR(leading_view(a, 2, length_only(1)), "internal", "no axis 2");
  EXPECT_ERROR(leading_view(a, -1, length_only(1)), "internal", "no axis -1");
}

}  // namespace
}  // namespace mlxx
