#include "mlxx/core/checkpoint.h"

#include <stdexcept>

#include <gtest/gtest.h>

#include "counting_primitive.h"
#include "error_of.h"
#include "same_gradients.h"

namespace mlxx {
namespace {

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
  auto ours = gradients_of(loss(checkpointed), {layer.a});
  EXPECT_EQ(largest(theirs.gradients[0]), 0.0f);
  EXPECT_GT(largest(ours.gradients[0]), 0.1f);
}

TEST(Checkpoint, IsCalledOnceAndComputedTwice) {
  Counter counter;
  int calls = 0;
  auto block = checkpointed([&](const Arrays& in) -> Arrays {
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

TEST(Checkpoint, OutsideATraceOnlyCallsTheFunction) {
  Arrays made;
  auto block = checkpointed([&](const Arrays& in) -> Arrays {
    made = {mx::exp(in[0]), in[0]};
    return made;
  });
  mx::array x = numbers({4}, 1);
  Arrays outputs = block({x});
  ASSERT_EQ(outputs.size(), 2u);
  EXPECT_EQ(outputs[0].id(), made[0].id());
  EXPECT_EQ(outputs[1].id(), x.id());
}

TEST(Checkpoint, RandomNumbersAreTheSameTwice) {
  auto loss = [](Wrap wrap, const Arrays& arguments) -> Arrays {
    auto block = wrap([](const Arrays& in) -> Arrays {
      mx::array keep = mx::random::bernoulli(0.5f, {64}) /* global key */;
      mx::array y = mx::where(keep, mx::sin(in[0]), mx::array(0.0f));
      return {y * mx::random::normal({64})};
    });
    // Two draws, then one more that must not be moved by a recomputation.
    mx::array y = block(block({arguments[0]}))[0];
    return {loss_of({y * mx::random::uniform({64})})};
  };
  expect_as_inlined(loss, {numbers({64}, 3)});
}

TEST(Checkpoint, ManyUsesOfOneArrayAreSummedInTheSameOrder) {
  auto loss = [](Wrap wrap, const Arrays& arguments) -> Arrays {
    mx::array w = arguments[1];
    auto block = wrap([&](const Arrays& in) -> Arrays {
      mx::array h = in[0] + mx::tanh(in[0] * w) * in[0];
      return {h + mx::sin(h * w) * w * h};
    });
    mx::array x = arguments[0];
    for (int i = 0; i < 3; ++i) {
      x = x + block({x})[0] * x * w;
    }
    return {loss_of({x})};
  };
  expect_as_inlined(loss, {numbers({64}, 3), numbers({64}, 4)});
}

TEST(Checkpoint, Nested) {
  Counter inner_count;
  auto loss = [&](Wrap wrap, const Arrays& arguments) -> Arrays {
    mx::array w = arguments[1];
    auto inner = wrap([&](const Arrays& in) -> Arrays {
      return {mx::sin(inner_count(mx::matmul(in[0], w)))};
    });
    auto middle = wrap([&](const Arrays& in) -> Arrays {
      mx::array y = inner({in[0] * w})[0];
      return {inner({y + in[0]})[0], y};
    });
    auto outer = wrap([&](const Arrays& in) -> Arrays {
      Arrays y = middle({mx::cos(in[0])});
      return {mx::exp(y[0] * 0.1f) + w, y[1]};
    });
    return {loss_of(outer({arguments[0]}))};
  };
  expect_as_inlined(loss, {numbers({8, 8}, 3), numbers({8, 8}, 4)});
  // Both uses: once each inlined, once each in the forward pass, again for the
  // outer one; then the first for the middle one, and each for itself.
  EXPECT_EQ(inner_count.count(), 2 + 2 + 2 + 1 + 2);
}

TEST(Checkpoint, SeveralOutputsAndOperationsWithSeveralOutputs) {
  auto loss = [](Wrap wrap, const Arrays& arguments) -> Arrays {
    auto block = wrap([&](const Arrays& in) -> Arrays {
      Arrays parts = mx::split(mx::sin(in[0]), 4, 0);
      Arrays whole = mx::divmod(in[0], arguments[1]);
      // Not all outputs of split leave, one does twice.
      return {
          parts[2] * parts[0],
          parts[3],
          parts[3],
          whole[1],
          parts[0] + in[1]};
    });
    mx::array k(2);
    Arrays y = block({arguments[0], mx::astype(k, mx::float32)});
    return {loss_of(y)};
  };
  expect_as_inlined(loss, {numbers({8, 3}, 3), numbers({8, 3}, 4)});
}

// A zero cotangent is not the same as none: 0 / 0.
TEST(Checkpoint, AnUnusedOutputHasNoGradient) {
  auto loss = [](Wrap wrap, const Arrays& arguments) -> Arrays {
    auto block = wrap([](const Arrays& in) -> Arrays {
      mx::array y = mx::abs(in[0]);
      return {mx::log(y), y * 3.0f, mx::stop_gradient(y)};
    });
    Arrays y = block({arguments[0]});
    return {loss_of({y[1], y[2]})};
  };
  mx::array x({0.0f, 1.0f, -2.0f});
  expect_as_inlined(loss, {x});
  auto gradient = gradients_of(
      [&](const Arrays& in) { return loss(checkpointed, in); },
      {x});
  EXPECT_FALSE(mx::any(mx::isnan(gradient.gradients[0])).item<bool>());
}

TEST(Checkpoint, StopGradientOutputsGetNone) {
  auto loss = [](Wrap wrap, const Arrays& arguments) -> Arrays {
    auto block = wrap([&](const Arrays& in) -> Arrays {
      mx::array y = in[0] * arguments[1];
      return {
          mx::stop_gradient(mx::sin(y)),
          mx::concatenate({y, y}, 0),
          mx::exp(mx::stop_gradient(arguments[1]))};
    });
    return {loss_of(block({arguments[0]}))};
  };
  expect_as_inlined(loss, {numbers({8}, 3), numbers({8}, 4)});
}

TEST(Checkpoint, IntegerInputsAndOutputs) {
  auto loss = [](Wrap wrap, const Arrays& arguments) -> Arrays {
    mx::array table = arguments[0];
    auto embed = wrap([&](const Arrays& in) -> Arrays {
      mx::array rows = mx::take(table, in[0], 0);
      return {
          mx::sin(rows),
          in[0] + 1,
          mx::stop_gradient(mx::argmax(rows, 1)),
          mx::astype(rows > 0, mx::int32)};
    });
    Arrays y = embed({mx::array({3, 1, 1, 0})});
    // An index that comes out may be used as one again.
    y = embed({mx::minimum(y[1] + y[2], mx::array(4))});
    return {loss_of(
        {y[0],
         mx::take(table, y[2], 1),
         table * mx::astype(mx::sum(y[3]), mx::float32)})};
  };
  expect_as_inlined(loss, {numbers({5, 4}, 3)});
  // Tokens as an argument of the loss, not differentiated in but traced.
  mx::array table = numbers({5, 4}, 3);
  mx::array tokens({3, 1, 1, 0});
  auto by_tokens = [&](Wrap wrap) {
    auto embed = wrap([](const Arrays& in) -> Arrays {
      return {mx::take(in[0], in[1], 0), in[1] + 1};
    });
    return mx::value_and_grad(
        [&](const Arrays& in) -> Arrays {
          Arrays y = embed(in);
          return {loss_of({y[0], embed({in[0], y[1]})[0]})};
        },
        std::vector<int>{0})({table, tokens});
  };
  EXPECT_TRUE(same_bits(
      by_tokens(inlined).second[0],
      by_tokens(checkpointed).second[0]));
}

TEST(Checkpoint, InputsAndCapturedArraysAsOutputs) {
  auto loss = [](Wrap wrap, const Arrays& arguments) -> Arrays {
    mx::array w = arguments[1];
    auto block = wrap([&](const Arrays& in) -> Arrays {
      return {in[0], w, in[0] * w, in[1]};
    });
    mx::array x = mx::exp(arguments[0]);
    Arrays y = block({x, x});
    y.push_back(x * w);
    auto pass = wrap([&](const Arrays& in) -> Arrays { return {in[0], w}; });
    Arrays passed = pass({y[2]});
    EXPECT_EQ(passed[0].id(), y[2].id());
    EXPECT_EQ(passed[1].id(), w.id());
    y.push_back(mx::sin(passed[0]));
    return {loss_of(y)};
  };
  expect_as_inlined(loss, {numbers({8}, 3), numbers({8}, 4)});
}

TEST(Checkpoint, NoInputsAndNoOutputs) {
  Counter counter;
  auto loss = [&](Wrap wrap, const Arrays& arguments) -> Arrays {
    auto block = wrap([&](const Arrays&) -> Arrays {
      return {mx::sin(counter(mx::square(arguments[0])))};
    });
    EXPECT_TRUE(wrap([](const Arrays&) { return Arrays(); })({}).empty());
    return {loss_of(block({}))};
  };
  expect_as_inlined(loss, {numbers({8}, 3)});
  EXPECT_EQ(counter.count(), 1 + 2);
}

TEST(Checkpoint, ErrorsOfTheFunctionComeOutUnchanged) {
  struct Refused : std::exception {
    int code = 42;
  };
  bool refuse = true;
  auto block = checkpointed([&](const Arrays& in) -> Arrays {
    mx::array y = mx::exp(in[0]);
    if (refuse) {
      throw Refused{};
    }
    return {y};
  });
  auto step = [&](const Arrays& in) -> Arrays { return {loss_of(block(in))}; };
  mx::array x = numbers({8}, 1);
  for (const auto& call :
       {std::function<void()>([&] { block({x}); }),
        std::function<void()>([&] { gradients_of(step, {x}); })}) {
    try {
      call();
      FAIL() << "not refused";
    } catch (const Refused& refused) {
      EXPECT_EQ(refused.code, 42);
    }
  }
  refuse = false;
  expect_same(
      gradients_of(step, {x}),
      gradients_of(
          [](const Arrays& in) -> Arrays {
            return {loss_of({mx::exp(in[0])})};
          },
          {x}));
}

TEST(Checkpoint, ErrorsOfTheBackwardPassComeOutUnchanged) {
  auto message_of = [](const ArrayFunction& block) -> std::string {
    try {
      gradients_of(
          [&](const Arrays& in) -> Arrays { return {loss_of(block(in))}; },
          {numbers({4, 4}, 1)});
    } catch (const std::logic_error& error) {
      return error.what();
    }
    return "no error";
  };
  // An operation without a gradient: MLX's words.
  auto no_gradient = [](const Arrays& in) -> Arrays {
    return {mx::astype(
        mx::take(mx::array({1.0f, 2.0f, 3.0f}), mx::argmax(in[0], 0)),
        mx::float32)};
  };
  EXPECT_EQ(message_of(checkpointed(no_gradient)), message_of(no_gradient));
  EXPECT_NE(message_of(no_gradient), "no error");
  // A gradient of the user's own.
  auto throwing = mx::custom_vjp(
      [](const Arrays& in) -> Arrays { return {mx::exp(in[0])}; },
      [](const Arrays&, const Arrays&, const Arrays&) -> Arrays {
        throw std::logic_error("not today");
      });
  EXPECT_EQ(message_of(checkpointed(throwing)), "not today");
}

TEST(Checkpoint, NeedsAFunction) {
  EXPECT_ERROR(
      checkpointed(nullptr),
      "invalid_request",
      "[checkpoint] there is no function");
}

// Only what leads to a wanted gradient is asked for one: quantized weights have
// none.
TEST(Checkpoint, FrozenQuantizedWeightsAreNotAskedForGradients) {
  Arrays quantized = mx::quantize(numbers({64, 64}, 1), 64, 4);
  auto loss = [&](Wrap wrap, const Arrays& arguments) -> Arrays {
    auto block = wrap([&](const Arrays& in) -> Arrays {
      mx::array base = mx::quantized_matmul(
          in[0],
          quantized[0],
          quantized[1],
          quantized[2],
          true,
          64,
          4);
      return {mx::tanh(base) + mx::matmul(in[0], arguments[1])};
    });
    return {loss_of(block(block({arguments[0]})))};
  };
  expect_as_inlined(loss, {numbers({4, 64}, 3), numbers({64, 64}, 4)});
}

// Made before: not computed again, and its gradient goes on from it.
TEST(Checkpoint, WhatWasThereBeforeIsComputedOnce) {
  Counter counter;
  Counter constant;
  auto loss = [&](Wrap wrap, const Arrays& arguments) -> Arrays {
    mx::array merged = counter(mx::matmul(arguments[1], arguments[2]));
    mx::array mask = constant(mx::tri(8, 8, 0, mx::float32));
    auto block = wrap([&](const Arrays& in) -> Arrays {
      return {mx::tanh(mx::matmul(in[0], merged * mask)) * merged};
    });
    return {loss_of(block(block({arguments[0]})))};
  };
  expect_as_inlined(
      loss,
      {numbers({8, 8}, 3), numbers({8, 2}, 4), numbers({2, 8}, 5)});
  EXPECT_EQ(counter.count(), 1 + 1);
  EXPECT_EQ(constant.count(), 1 + 1);
}

// Made inside from captured arrays alone: computed again, constants too.
TEST(Checkpoint, WhatTheFunctionMakesOfCapturesIsComputedTwice) {
  Counter counter;
  Counter constant;
  auto loss = [&](Wrap wrap, const Arrays& arguments) -> Arrays {
    auto block = wrap([&](const Arrays& in) -> Arrays {
      mx::array merged = counter(mx::matmul(arguments[1], arguments[2]));
      mx::array mask = constant(mx::tri(8, 8, 0, mx::float32));
      return {mx::tanh(mx::matmul(in[0], merged * mask))};
    });
    return {loss_of(block({arguments[0]}))};
  };
  expect_as_inlined(
      loss,
      {numbers({8, 8}, 3), numbers({8, 2}, 4), numbers({2, 8}, 5)});
  EXPECT_EQ(counter.count(), 1 + 2);
  EXPECT_EQ(constant.count(), 1 + 2);
}

// The function keeps what it made, such as its last hidden state: usable, with
// a gradient that comes its own way, and still computed again.
TEST(Checkpoint, ArraysThatTheFunctionKeeps) {
  Counter counter;
  auto loss = [&](Wrap wrap, bool uses_kept, const Arrays& arguments) {
    Arrays kept;
    auto block = wrap([&](const Arrays& in) -> Arrays {
      mx::array hidden = counter(mx::sin(in[0] * arguments[1]));
      Arrays parts = mx::split(mx::exp(hidden), 2, 0);
      mx::array y = mx::concatenate({parts[0], parts[0]}, 0) * hidden;
      kept = {hidden, parts[1], y, in[0]};
      return {y};
    });
    Arrays y = block({arguments[0]});
    if (uses_kept) {
      y.insert(y.end(), kept.begin(), kept.end());
    }
    return Arrays{loss_of(y)};
  };
  auto with = [&](Wrap wrap, bool uses_kept) {
    return gradients_of(
        [&](const Arrays& in) { return loss(wrap, uses_kept, in); },
        {numbers({8, 4}, 3), numbers({8, 4}, 4)});
  };
  expect_same(with(inlined, false), with(checkpointed, false));
  EXPECT_EQ(counter.count(), 1 + 2);
  // Two ways, so the gradient is a sum with other roundings.
  Gradients plain = with(inlined, true);
  Gradients twice = with(checkpointed, true);
  EXPECT_TRUE(same_bits(plain.loss, twice.loss));
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_TRUE(mx::allclose(plain.gradients[i], twice.gradients[i], 1e-5)
                    .item<bool>());
  }
}

}  // namespace
}  // namespace mlxx
