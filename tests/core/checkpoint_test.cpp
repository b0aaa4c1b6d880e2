#include "mlxx/core/checkpoint.h"

#include <cstring>
#include <stdexcept>

#include <gtest/gtest.h>

#include "counting_primitive.h"
#include "error_of.h"

namespace mlxx {
namespace {

using Arrays = std::vector<mx::array>;

// Same dtype, shape and bits.
::testing::AssertionResult same_bits(const mx::array& a, const mx::array& b) {
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

mx::array numbers(mx::Shape shape, int seed) {
  return mx::random::normal(
      shape,
      mx::float32,
      mx::random::key(static_cast<uint64_t>(seed)));
}

// Any loss that gives each output another cotangent.
mx::array loss_of(const Arrays& outputs) {
  mx::array loss(0.0f);
  for (size_t i = 0; i < outputs.size(); ++i) {
    const mx::array& y = outputs[i];
    loss = loss +
        mx::sum(mx::sin(y) * numbers(y.shape(), 900 + static_cast<int>(i)));
  }
  return loss;
}

struct Gradients {
  mx::array loss;
  Arrays gradients;
};

// In all arguments.
Gradients gradients_of(const ArrayFunction& loss, const Arrays& arguments) {
  std::vector<int> indices;
  for (size_t i = 0; i < arguments.size(); ++i) {
    indices.push_back(static_cast<int>(i));
  }
  auto [value, gradients] = mx::value_and_grad(loss, indices)(arguments);
  mx::eval(value);
  mx::eval(gradients);
  return {value[0], gradients};
}

void expect_same(const Gradients& a, const Gradients& b) {
  EXPECT_TRUE(same_bits(a.loss, b.loss));
  ASSERT_EQ(a.gradients.size(), b.gradients.size());
  for (size_t i = 0; i < a.gradients.size(); ++i) {
    EXPECT_TRUE(same_bits(a.gradients[i], b.gradients[i])) << "gradient " << i;
  }
}

ArrayFunction inlined(ArrayFunction function) {
  return function;
}

// `loss(wrap, arguments)` with wrap = inlined and wrap = checkpoint.
using Wrap = ArrayFunction (*)(ArrayFunction);
using WrappedLoss = std::function<Arrays(Wrap wrap, const Arrays& arguments)>;

void expect_as_inlined(const WrappedLoss& loss, const Arrays& arguments) {
  auto with = [&](Wrap wrap) {
    mx::random::seed(7);
    return gradients_of(
        [&](const Arrays& tracers) { return loss(wrap, tracers); },
        arguments);
  };
  expect_same(with(inlined), with(checkpoint));
}

float largest(const mx::array& a) {
  return mx::max(mx::abs(a)).item<float>();
}

// x @ W + (x @ A) @ B, all but x captured.
struct LoraLayer {
  mx::array weight, a, b;

  mx::array operator()(const mx::array& x) const {
    return mx::matmul(x, weight) + mx::matmul(mx::matmul(x, a), b);
  }
};

LoraLayer lora_layer(int seed) {
  return {
      numbers({8, 8}, seed),
      numbers({8, 2}, seed + 1),
      numbers({2, 8}, seed + 2)};
}

TEST(Checkpoint, GradientsReachInputsAndCapturedLeaves) {
  LoraLayer layer = lora_layer(1);
  // The adapter is swapped in for the layer that the closure refers to.
  auto loss = [&](Wrap wrap, const Arrays& arguments) -> Arrays {
    LoraLayer mounted = layer;
    auto block = wrap([&mounted](const Arrays& in) -> Arrays {
      return {mx::tanh(mounted(in[0]))};
    });
    mounted.a = arguments[1];
    mounted.b = arguments[2];
    return {loss_of(block({arguments[0]}))};
  };
  expect_as_inlined(loss, {numbers({4, 8}, 5), layer.a, layer.b});
}

// What this one is for: MLX's own loses the gradient of captured weights.
TEST(Checkpoint, MlxsOwnGivesZeroForCapturedLeaves) {
  LoraLayer layer = lora_layer(1);
  auto loss = [&](auto wrap) {
    return [&, wrap](const Arrays& arguments) -> Arrays {
      LoraLayer mounted = {layer.weight, arguments[0], layer.b};
      auto block = wrap([&](const Arrays& in) -> Arrays {
        return {mx::tanh(mounted(in[0]))};
      });
      return {loss_of(block({numbers({4, 8}, 5)}))};
    };
  };
  auto theirs = gradients_of(loss(mx::checkpoint), {layer.a});
  auto ours = gradients_of(loss(checkpoint), {layer.a});
  EXPECT_EQ(largest(theirs.gradients[0]), 0.0f);
  EXPECT_GT(largest(ours.gradients[0]), 0.1f);
}

TEST(Checkpoint, IsCalledOnceAndComputedTwice) {
  Counter counter;
  int calls = 0;
  auto block = checkpoint([&](const Arrays& in) -> Arrays {
    ++calls;
    return {mx::exp(counter(mx::square(in[0])))};
  });
  auto step = [&](const Arrays& arguments) -> Arrays {
    return {loss_of(block({arguments[0]}))};
  };
  gradients_of(step, {numbers({8}, 1)});
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(counter.count(), 2);
  // The same object again.
  gradients_of(step, {numbers({8}, 2)});
  EXPECT_EQ(calls, 2);
  EXPECT_EQ(counter.count(), 4);
}

}  // namespace
}  // namespace mlxx
