#pragma once

#include <cstring>
#include <functional>
#include <vector>

#include <gtest/gtest.h>

#include "mlxx/core/checkpoint.h"

namespace mlxx {

using Arrays = std::vector<mx::array>;

// Same dtype, shape and bits.
inline ::testing::AssertionResult same_bits(
    const mx::array& a,
    const mx::array& b) {
  if (a.dtype() != b.dtype() || a.shape() != b.shape()) {
    return ::testing::AssertionFailure() << "another dtype or shape";
  }
  mx::array x = mx::contiguous(a);
  mx::array y = mx::contiguous(b);
  mx::eval(x, y);
  if (std::memcmp(x.data<char>(), y.data<char>(), x.nbytes()) != 0) {
    return ::testing::AssertionFailure() << "other bits";
  }
  return ::testing::AssertionSuccess();
}

inline mx::array numbers(mx::Shape shape, int seed) {
  return mx::random::normal(
      shape,
      mx::float32,
      mx::random::key(static_cast<uint64_t>(seed)));
}

// A loss that gives each output, and each of its elements, another cotangent.
inline mx::array loss_of(const Arrays& outputs) {
  mx::array loss(0.0f);
  float factor = 0.7f;
  for (const mx::array& y : outputs) {
    loss = loss + mx::sum(mx::sin(y) * mx::exp(y * 0.1f)) * factor;
    factor *= 1.3f;
  }
  return loss;
}

struct Gradients {
  mx::array loss;
  Arrays gradients;
};

// In all arguments.
inline Gradients gradients_of(
    const ArrayFunction& loss,
    const Arrays& arguments) {
  std::vector<int> indices;
  for (size_t i = 0; i < arguments.size(); ++i) {
    indices.push_back(static_cast<int>(i));
  }
  auto [value, gradients] = mx::value_and_grad(loss, indices)(arguments);
  gradients.push_back(value[0]);
  mx::eval(gradients);
  gradients.pop_back();
  return {value[0], gradients};
}

inline void expect_same(const Gradients& a, const Gradients& b) {
  EXPECT_TRUE(same_bits(a.loss, b.loss));
  ASSERT_EQ(a.gradients.size(), b.gradients.size());
  for (size_t i = 0; i < a.gradients.size(); ++i) {
    EXPECT_TRUE(same_bits(a.gradients[i], b.gradients[i])) << "gradient " << i;
  }
}

inline ArrayFunction inlined(ArrayFunction function) {
  return function;
}

// `loss(wrap, arguments)` is run with wrap = inlined and wrap = checkpointed.
using Wrap = ArrayFunction (*)(ArrayFunction);
using WrappedLoss = std::function<Arrays(Wrap wrap, const Arrays& arguments)>;

inline void expect_as_inlined(
    const WrappedLoss& loss,
    const Arrays& arguments) {
  auto with = [&](Wrap wrap) {
    mx::random::seed(7);
    return gradients_of(
        [&](const Arrays& tracers) { return loss(wrap, tracers); },
        arguments);
  };
  expect_same(with(inlined), with(checkpointed));
}

}  // namespace mlxx
