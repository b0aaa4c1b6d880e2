#include <random>

#include <gtest/gtest.h>

#include "same_gradients.h"

namespace mlxx {
namespace {

// A function made of operations drawn at random, each on arrays drawn at
// random from the inputs, the captured arrays and what came before.
class RandomFunction {
 public:
  RandomFunction(unsigned seed, int operations, int outputs)
      : seed_(seed), operations_(operations), outputs_(outputs) {}

  Arrays operator()(const Arrays& inputs, const Arrays& captured) const {
    std::mt19937 random(seed_);
    Arrays pool = inputs;
    pool.insert(pool.end(), captured.begin(), captured.end());
    auto any = [&]() -> mx::array { return pool[random() % pool.size()]; };
    for (int i = 0; i < operations_; ++i) {
      for (const mx::array& made : apply(random() % 14, any)) {
        pool.push_back(made);
      }
    }
    // Newest first, so that most of the operations matter.
    Arrays result;
    for (int i = 0; i < outputs_; ++i) {
      result.push_back(i == 0 ? pool.back() : any());
    }
    return result;
  }

 private:
  // Arrays are [6, 6] of float32 and stay near 1.
  template <typename Any>
  static Arrays apply(unsigned operation, Any&& any) {
    switch (operation) {
      case 0:
        return {any() * 0.5f + any() * 0.5f};
      case 1:
        return {mx::sin(any())};
      case 2:
        return {mx::tanh(any() * any())};
      case 3:
        return {mx::matmul(any(), any()) * 0.2f};
      case 4: {
        Arrays parts = mx::split(any(), 3, 0);
        mx::array whole = any();
        return {
            mx::concatenate({parts[2], parts[0], parts[0]}, 0),
            mx::tile(parts[1], {3, 1}) + whole};
      }
      case 5:
        return {mx::transpose(any()) + mx::sum(any(), 0) * 0.1f};
      case 6: {
        mx::array x = any();
        return {mx::where(x > any(), x, any())};
      }
      case 7:
        return {mx::stop_gradient(any()) * any()};
      case 8:
        return {
            mx::astype(mx::astype(any(), mx::bfloat16), mx::float32) - any()};
      case 9:
        return {mx::take(any(), mx::array({5, 0, 3, 3, 1, 2}), 0)};
      case 10:
        return {mx::softmax(any(), -1)};
      case 11: {
        Arrays parts = mx::divmod(any(), mx::array(0.7f));
        return {parts[1] + parts[0] * 0.1f};
      }
      case 12:
        return {any() * mx::random::uniform({6, 6})};
      default:
        return {mx::fast::rms_norm(any(), mx::sum(any(), 0), 1e-3f)};
    }
  }

  unsigned seed_;
  int operations_;
  int outputs_;
};

void expect_close(const mx::array& a, const mx::array& b) {
  EXPECT_EQ(a.shape(), b.shape());
  EXPECT_TRUE(mx::allclose(a, b, 1e-3, 1e-4).item<bool>());
}

// x goes through two functions, the second inside a third; all share a weight.
Arrays network(Wrap wrap, unsigned seed, int outputs, const Arrays& arguments) {
  const mx::array& x = arguments[0];
  Arrays captured = {arguments[1], mx::sin(arguments[2])};
  RandomFunction first(seed, 12, 1);
  RandomFunction second(seed + 1, 10, 1);
  RandomFunction third(seed + 2, 12, outputs);
  auto one = wrap([&](const Arrays& in) { return first(in, captured); });
  auto two = wrap([&](const Arrays& in) { return second(in, captured); });
  auto three = wrap([&](const Arrays& in) {
    Arrays y = third(in, captured);
    y[0] = two({y[0]})[0];
    return y;
  });
  mx::array y = one({x})[0];
  return {loss_of(three({y, x}))};
}

TEST(CheckpointRandomGraph, OneFunctionHasTheSameBits) {
  for (unsigned seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    RandomFunction function(seed, 20, 1);
    auto loss = [&](Wrap wrap, const Arrays& arguments) -> Arrays {
      auto block = wrap([&](const Arrays& in) {
        return function(in, {arguments[1], mx::cos(arguments[1])});
      });
      return {loss_of({block({arguments[0]})[0] + arguments[0]})};
    };
    expect_as_inlined(loss, {numbers({6, 6}, 1), numbers({6, 6}, 2)});
  }
}

class CheckpointRandomGraphs : public ::testing::TestWithParam<int> {};

TEST_P(CheckpointRandomGraphs, GradientsAreThoseOfTheInlinedFunction) {
  int outputs = GetParam();
  for (unsigned seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    auto with = [&](Wrap wrap) {
      mx::random::seed(seed);
      return gradients_of(
          [&](const Arrays& in) { return network(wrap, seed, outputs, in); },
          {numbers({6, 6}, 1), numbers({6, 6}, 2), numbers({6, 6}, 3)});
    };
    Gradients plain = with(inlined);
    Gradients twice = with(checkpointed);
    EXPECT_TRUE(same_bits(plain.loss, twice.loss));
    for (size_t i = 0; i < plain.gradients.size(); ++i) {
      expect_close(plain.gradients[i], twice.gradients[i]);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Outputs,
    CheckpointRandomGraphs,
    ::testing::Values(1, 3));

}  // namespace
}  // namespace mlxx
