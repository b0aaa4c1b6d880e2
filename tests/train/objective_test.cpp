// Losses of the methods and the arithmetic of updates, in corners that a run
// seldom meets. That they are right is compared with the papers' formulas in
// tests/oracle/training.
#include <cmath>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "mlxx/core/autograd.h"
#include "mlxx/core/host_values.h"
#include "mlxx/train/learning_rate.h"
#include "mlxx/train/objective.h"
#include "mlxx/train/optimizer.h"
#include "tests/core/error_of.h"
#include "tests/train/toy_training.h"

namespace mlxx::train {
namespace {

double number(const mx::array& array) {
  return item_of<float>(array, "test");
}

std::vector<float> numbers(const mx::array& array) {
  const HostValues<float> values(array, "test");
  return {values.span().begin(), values.span().end()};
}

mx::array gradient_of(
    const std::function<mx::array(const mx::array&)>& function,
    const mx::array& at) {
  return ValueAndGrad(
             [&](const std::vector<mx::array>& x) {
               return std::vector<mx::array>{mx::sum(function(x[0]))};
             },
             {0})
      .apply({at})
      .gradients[0];
}

TEST(ObjectiveTest, LogOfOneMinusExpIsExactEverywhere) {
  for (float x :
       {-1e-6f,
        -1e-3f,
        -0.3f,
        -0.6931f,
        -0.6932f,
        -1.0f,
        -20.0f,
        -90.0f,
        -1000.0f}) {
    const double expected = x > -1e-2
        ? std::log(-std::expm1(static_cast<double>(x)))
        : std::log1p(-std::exp(static_cast<double>(x)));
    const mx::array at(x);
    EXPECT_NEAR(
        number(log1mexp(at)),
        expected,
        1e-6 * std::abs(expected) + 1e-37)
        << x;
    const double slope = number(gradient_of(log1mexp, at));
    EXPECT_TRUE(std::isfinite(slope)) << x;
    const double exact = 1 / -std::expm1(-static_cast<double>(x)) * 1;
    EXPECT_NEAR(slope, exact, 1e-5 * std::abs(exact) + 1e-30) << x;
  }
  // A probability of one, where the paper's formula is infinite.
  EXPECT_TRUE(std::isfinite(number(log1mexp(mx::array(0.0f)))));
  EXPECT_TRUE(std::isfinite(number(gradient_of(log1mexp, mx::array(0.0f)))));
}

data::Batch pair_batch() {
  return ToyData({.samples = 5, .batch_size = 3, .pairs = true}).batch(0);
}

mx::array random_scores(const data::Batch& batch, uint64_t seed) {
  const mx::Shape shape = {batch.rows, batch.length};
  const mx::array targets(batch.targets.begin(), shape, mx::float32);
  return mx::multiply(
      targets,
      mx::negative(mx::abs(
          mx::random::normal(shape, mx::float32, mx::random::key(seed)))));
}

// Both answers of a pair in one packed row, its prompt once.
TEST(ObjectiveTest, PackedPairsGiveWhatRowsGive) {
  data::Batch rows = pair_batch();
  const mx::array scores = random_scores(rows, 3);
  const auto values = numbers(scores);
  data::Batch packed;
  packed.rows = 1;
  std::vector<float> packed_scores;
  for (int r = 0; r < rows.rows; ++r) {
    const int begin = static_cast<int>(packed_scores.size());
    for (int i = 0; i < rows.length; ++i) {
      packed_scores.push_back(values[r * rows.length + i]);
      packed.targets.push_back(rows.targets[r * rows.length + i]);
    }
    packed.segments.push_back(
        {begin, static_cast<int>(packed_scores.size()), -1, r / 2});
  }
  packed.length = static_cast<int>(packed_scores.size());
  packed.pairs = rows.pairs;
  for (Method method : {Method::dpo, Method::orpo}) {
    const Objective objective({.method = method});
    const mx::array reference = mx::zeros({3, 2});
    const auto a = objective.loss(rows, 3, reference)(scores);
    const auto b = objective.loss(packed, 3, reference)(
        mx::array(packed_scores.begin(), {1, packed.length}, mx::float32));
    EXPECT_NEAR(number(a.loss), number(b.loss), 1e-5);
    ASSERT_EQ(a.metrics.size(), b.metrics.size());
    for (size_t i = 0; i < a.metrics.size(); ++i) {
      EXPECT_NEAR(
          number(a.metrics[i].second),
          number(b.metrics[i].second),
          1e-5)
          << a.metrics[i].first;
    }
  }
}

TEST(ObjectiveTest, PairWithAnEmptyAnswerDoesNotCount) {
  data::Batch batch = pair_batch();
  const mx::array reference = mx::zeros({3, 2});
  for (int i = 0; i < batch.length; ++i) {
    batch.targets[batch.length + i] = 0;  // rejected of the first pair
  }
  for (Method method : {Method::dpo, Method::orpo}) {
    const Objective objective({.method = method});
    ASSERT_EQ(objective.count(batch), 2);
    const auto loss = objective.loss(batch, 2, reference);
    const mx::array scores = random_scores(batch, 4);
    EXPECT_TRUE(std::isfinite(number(loss(scores).loss)));
    EXPECT_EQ(number(loss(scores).count), 1);
    const auto slope = numbers(
        gradient_of([&](const mx::array& x) { return loss(x).loss; }, scores));
    for (int i = 0; i < 2 * batch.length; ++i) {
      EXPECT_EQ(slope[i], 0) << i;
    }
    for (float one : slope) {
      EXPECT_TRUE(std::isfinite(one));
    }
  }
  const Objective sft({});
  data::Batch empty = batch;
  std::fill(empty.targets.begin(), empty.targets.end(), 0);
  EXPECT_EQ(sft.count(empty), 0);
  EXPECT_EQ(Objective({.method = Method::orpo}).count(empty), 0);
}

TEST(ObjectiveTest, HugeMarginsStayFinite) {
  data::Batch batch = pair_batch();
  const mx::array huge = mx::multiply(random_scores(batch, 5), mx::array(1e6f));
  for (Method method : {Method::dpo, Method::orpo}) {
    const auto loss =
        Objective({.method = method}).loss(batch, 3, mx::zeros({3, 2}));
    EXPECT_TRUE(std::isfinite(number(loss(huge).loss)));
    for (float one : numbers(gradient_of(
             [&](const mx::array& x) { return loss(x).loss; },
             huge))) {
      EXPECT_TRUE(std::isfinite(one));
    }
  }
}

TEST(ObjectiveTest, WrongUseIsRefused) {
  EXPECT_ERROR(method_of("rl"), "invalid_request", "\"rl\"");
  EXPECT_ERROR(
      Objective({.method = Method::dpo, .beta = 0}),
      "invalid_request",
      "beta");
  const auto no_pairs = ToyData({}).batch(0);
  EXPECT_ERROR(
      Objective({.method = Method::dpo}).count(no_pairs),
      "invalid_request",
      "no pairs");
}

TEST(OptimizerTest, HalfPrecisionHasMasters) {
  // Steps too small for bfloat16 add up.
  const mx::array start = mx::full({4}, 1.0f, mx::bfloat16);
  Optimizer optimizer({.name = "sgd"}, {"w"}, {start});
  std::vector<mx::array> values = {start};
  for (int i = 0; i < 100; ++i) {
    values = optimizer.update(
        {mx::full({4}, 1.0f, mx::bfloat16)},
        values,
        mx::array(1e-4f));
    mx::eval(values);
  }
  EXPECT_EQ(values[0].dtype(), mx::bfloat16);
  EXPECT_NEAR(number(mx::min(mx::astype(values[0], mx::float32))), 0.99, 4e-3);
  ASSERT_EQ(optimizer.state().size(), 1u);
  EXPECT_EQ(optimizer.state()[0].first, "w/master");
  EXPECT_NEAR(number(mx::min(optimizer.state()[0].second)), 0.99, 1e-5);
}

TEST(OptimizerTest, StateComesBackWholeOrNotAtAll) {
  const std::vector<mx::array> start = {mx::ones({3, 2}), mx::ones({2})};
  const auto make = [&](const std::string& name) {
    return Optimizer({.name = name}, {"a", "b"}, start);
  };
  const std::vector<mx::array> gradients = {
      mx::full({3, 2}, 0.3f),
      mx::full({2}, -0.1f)};
  for (const char* name :
       {"adamw", "adam", "sgd", "lion", "adafactor", "muon"}) {
    auto first = make(name);
    auto values = first.update(gradients, start, mx::array(0.1f));
    auto second = make(name);
    second.set_state(first.state(), first.updates());
    const auto a = first.update(gradients, values, mx::array(0.1f));
    const auto b = second.update(gradients, values, mx::array(0.1f));
    for (size_t i = 0; i < a.size(); ++i) {
      EXPECT_EQ(numbers(a[i]), numbers(b[i])) << name;
    }
    EXPECT_EQ(second.updates(), 2);
  }
  auto adam = make("adam");
  auto state = adam.state();
  state.pop_back();
  EXPECT_ERROR(adam.set_state(state, 1), "bad_file", "\"b/v\" is missing");
  state.emplace_back("b/v", mx::ones({5}));
  EXPECT_ERROR(adam.set_state(state, 1), "bad_file", "another shape");
  state.back().second = mx::zeros({2});
  state.emplace_back("c/v", mx::ones({5}));
  EXPECT_ERROR(adam.set_state(state, 1), "bad_file", "\"c/v\" belongs to no");
  EXPECT_EQ(adam.updates(), 0);
}

TEST(OptimizerTest, ParametersSideBySideGetTheSameBits) {
  for (const char* name : {"adamw", "adam", "sgd", "lion", "adafactor"}) {
    const std::vector<mx::array> start{
        mx::random::normal({5, 3}, mx::float32, 0, 1, mx::random::key(1)),
        mx::random::normal({7}, mx::float32, 0, 1, mx::random::key(2)),
        mx::random::normal({2, 2, 4}, mx::float32, 0, 1, mx::random::key(3))};
    auto run = [&](bool joins) {
      Optimizer optimizer({.name = name}, {"a", "b", "c"}, start, {1, 16, 1});
      optimizer.join(joins);
      auto values = start;
      for (int step = 0; step < 4; ++step) {
        std::vector<mx::array> gradients;
        for (const auto& value : values) {
          gradients.push_back(mx::sin(mx::multiply(value, mx::array(3.0f))));
        }
        values = optimizer.update(gradients, values, mx::array(0.01f));
        if (step == 1) {
          // As a run that is resumed: what is kept is not what rows show.
          auto state = optimizer.state();
          for (auto& [what, array] : state) {
            array = mx::contiguous(array);
          }
          optimizer.set_state(state, optimizer.updates());
        }
        mx::eval(values);
      }
      for (const auto& [what, array] : optimizer.state()) {
        values.push_back(array);
      }
      return values;
    };
    const auto apart = run(false);
    const auto joined = run(true);
    ASSERT_EQ(apart.size(), joined.size());
    for (size_t i = 0; i < apart.size(); ++i) {
      EXPECT_EQ(apart[i].shape(), joined[i].shape());
      EXPECT_TRUE(mx::array_equal(apart[i], joined[i]).item<bool>())
          << name << " " << i;
    }
  }
}

TEST(OptimizerTest, ClippingKeepsTheDirection) {
  const std::vector<mx::array> gradients = {
      mx::full({4}, 3.0f),
      mx::full({1}, -8.0f)};
  const mx::array norm = gradient_norm(gradients);
  EXPECT_NEAR(number(norm), 10, 1e-5);
  const auto clipped = clip_gradients(gradients, norm, 1);
  EXPECT_NEAR(number(gradient_norm(clipped)), 1, 1e-5);
  EXPECT_NEAR(number(clipped[1]), -0.8, 1e-5);
  const auto same = clip_gradients(gradients, norm, 20);
  EXPECT_EQ(numbers(same[0]), numbers(gradients[0]));
}

TEST(OptimizerTest, ArgumentsAreReadByName) {
  const auto read = [](const std::string& name, const char* text) {
    return optimizer_options(name, Json::parse(text));
  };
  const auto adam = read("adamw", R"({"betas": [0.8, 0.95], "weight_decay": 0,
                   "bias_correction": true, "eps": 1e-6})");
  EXPECT_EQ((*adam.betas)[1], 0.95);
  EXPECT_EQ(adam.weight_decay, 0);
  EXPECT_TRUE(adam.bias_correction);
  EXPECT_EQ(read("adafactor", R"({"eps": [1e-20, 1e-2]})").factor_eps[1], 1e-2);
  const auto refused =
      [&](const char* name, const char* text, const char* what) {
        EXPECT_ERROR(read(name, text), "invalid_request", what);
      };
  refused("adam", R"({"weight_decay": 0.1})", "adam takes no \"weight_decay\"");
  refused("sgd", R"({"betas": [0, 0]})", "betas");
  refused("adamw", R"({"betas": [0.9, 1]})", "below 1");
  refused("adamw", R"({"betas": [0.9]})", "two numbers");
  refused("adamw", R"({"eps": "small"})", "eps of adamw");
  refused("muon", R"({"ns_steps": 1.5})", "whole number");
  refused("muon", "[]", "an object");
  EXPECT_ERROR(
      Optimizer({.name = "sgd", .nesterov = true}, {}, {}),
      "invalid_request",
      "nesterov");
  EXPECT_ERROR(
      Optimizer({.name = "sam"}, {}, {}),
      "invalid_request",
      "\"sam\"");
}

TEST(LearningRateTest, NonsenseIsRefused) {
  const auto refused = [](ScheduleOptions options, const char* what) {
    EXPECT_ERROR(LearningRate{options}, "invalid_request", what);
  };
  refused({.name = "sine"}, "\"sine\"");
  refused({.name = "cosine_decay", .arguments = {1}}, "arguments");
  refused({.name = "cosine_decay", .arguments = {1, 0.5}}, "whole number");
  refused({.name = "step_decay", .arguments = {1, 0.5, 0}}, "from 1");
  refused({.name = "constant", .arguments = {-1}}, "at least 0");
  refused({.arguments = {1}, .warmup = -1}, "warm-up");
  refused({.arguments = {NAN}}, "found nan");
}

}  // namespace
}  // namespace mlxx::train
