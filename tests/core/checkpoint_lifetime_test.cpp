#include <stdexcept>
#include <thread>

#include <gtest/gtest.h>

#include "mlxx/core/autograd.h"
#include "mlxx/core/memory.h"
#include "same_gradients.h"

namespace mlxx {
namespace {

size_t active_bytes() {
  mx::synchronize();
  return memory_use().active;
}

mx::array chain(mx::array x, const mx::array& w, int length) {
  for (int i = 0; i < length; ++i) {
    x = mx::sin(x) * w + x;
  }
  return x;
}

TEST(CheckpointLifetime, NothingStaysAfterManySteps) {
  Arrays arguments = {numbers({64, 64}, 1), numbers({64, 64}, 2)};
  bool fails = false;
  Arrays kept;
  auto inner = checkpointed([&](const Arrays& in) -> Arrays {
    Arrays parts = mx::split(chain(in[0], arguments[1], 3), 2, 0);
    if (fails) {
      throw std::runtime_error("in the middle");
    }
    return {mx::concatenate(parts, 0), parts[1]};
  });
  auto outer = checkpointed([&](const Arrays& in) -> Arrays {
    kept = {mx::exp(in[0])};
    return {mx::tanh(inner(in)[0])};
  });
  ValueAndGrad step(
      [&](const Arrays& in) -> Arrays {
        arguments[1] = in[1];
        return {loss_of(outer({outer({in[0]})[0]}))};
      },
      {0, 1});
  Arrays given = arguments;
  mx::eval(given);
  auto run = [&] {
    try {
      auto result = step.apply(given);
      result.gradients.push_back(result.loss);
      mx::eval(result.gradients);
    } catch (const std::runtime_error&) {
      EXPECT_TRUE(fails);
    }
    arguments = given;
    kept.clear();
  };
  run();
  size_t before = active_bytes();
  for (int i = 0; i < 200; ++i) {
    fails = i % 2 == 1;
    run();
  }
  EXPECT_EQ(active_bytes(), before);
}

// The graph of a step that is never evaluated goes too.
TEST(CheckpointLifetime, NothingStaysOfLazyGraphs) {
  mx::array x = numbers({64, 64}, 1);
  mx::eval(x);
  size_t before = active_bytes();
  for (int i = 0; i < 100; ++i) {
    auto block = checkpointed([&, w = mx::ones({64, 64})](const Arrays& in) {
      return mx::split(chain(in[0], w, 3), 2, 0);
    });
    auto result = mx::value_and_grad(
        [&](const Arrays& in) -> Arrays { return {loss_of(block(in))}; })({x});
  }
  EXPECT_EQ(active_bytes(), before);
}

TEST(CheckpointLifetime, EvaluatingInsideIsAllowed) {
  auto loss = [](Wrap wrap, const Arrays& arguments) -> Arrays {
    auto block = wrap([&](const Arrays& in) -> Arrays {
      mx::array h = mx::exp(in[0] * arguments[1]);
      float scale = 1.0f / mx::max(h).item<float>();
      mx::array scaled = mx::sin(h * scale);
      mx::eval(scaled);
      return {scaled, h + scaled};
    });
    Arrays y = block({arguments[0]});
    mx::eval(y);
    return {loss_of(block({y[1]}))};
  };
  expect_as_inlined(loss, {numbers({8, 4}, 3), numbers({8, 4}, 4)});
}

TEST(CheckpointLifetime, LongFunctionsDoNotOverflowTheStack) {
  auto loss = [](Wrap wrap, const Arrays& arguments) -> Arrays {
    auto block = wrap([&](const Arrays& in) -> Arrays {
      return {chain(in[0], arguments[1], 2000)};
    });
    return {mx::sum(block({arguments[0]})[0])};
  };
  expect_as_inlined(loss, {numbers({2}, 3), numbers({2}, 4) * 0.01f});
}

TEST(CheckpointLifetime, EachThreadHasItsOwnTraces) {
  Arrays arguments = {numbers({8, 8}, 1), numbers({8, 8}, 2)};
  mx::eval(arguments);
  auto step = [&](Wrap wrap) {
    auto block = wrap(
        [&](const Arrays& in) -> Arrays { return {chain(in[0], in[1], 20)}; });
    return gradients_of(
        [&](const Arrays& in) -> Arrays { return {loss_of(block(in))}; },
        arguments);
  };
  Gradients plain = step(inlined);
  std::vector<std::thread> threads;
  std::vector<std::optional<Gradients>> found(4);
  for (auto& mine : found) {
    threads.emplace_back([&] {
      for (int i = 0; i < 10; ++i) {
        mine = step(checkpointed);
      }
    });
  }
  for (auto& thread : threads) {
    thread.join();
  }
  for (const auto& mine : found) {
    expect_same(plain, *mine);
  }
}

}  // namespace
}  // namespace mlxx
