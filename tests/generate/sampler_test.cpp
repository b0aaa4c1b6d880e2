#include "mlxx/generate/sampler.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include <gtest/gtest.h>

namespace mlxx::generate {
namespace {

mx::array row(std::vector<float> values) {
  auto n = static_cast<mx::ShapeElem>(values.size());
  return mx::array(values.begin(), {1, n}, mx::float32);
}

mx::array repeated(const mx::array& logits, int rows) {
  return mx::broadcast_to(logits, {rows, logits.shape(1)});
}

mx::array log_softmax(const mx::array& logits) {
  return logits - mx::logsumexp(logits, -1, true);
}

std::vector<int> numbers(const mx::array& array) {
  auto wide = mx::contiguous(mx::astype(array, mx::int32));
  mx::eval(wide);
  return {wide.data<int32_t>(), wide.data<int32_t>() + wide.size()};
}

// Ids of row 0 that a filter left.
std::set<int> kept(const mx::array& logprobs) {
  auto finite = numbers(logprobs > mx::array(-INFINITY));
  std::set<int> ids;
  for (size_t i = 0; i < static_cast<size_t>(logprobs.shape(1)); ++i) {
    if (finite[i]) {
      ids.insert(static_cast<int>(i));
    }
  }
  return ids;
}

std::vector<SampleKey> steps(int64_t seed, int count) {
  std::vector<SampleKey> keys;
  for (int64_t step = 0; step < count; ++step) {
    keys.push_back({seed, step});
  }
  return keys;
}

std::vector<int> draws(
    const SamplingOptions& options,
    const mx::array& logits,
    int count,
    int64_t seed = 1) {
  auto keys = steps(seed, count);
  return numbers(Sampler(options).sample(repeated(logits, count), keys).tokens);
}

TEST(Sampler, GreedyIsTheFirstOfTheLargest) {
  auto logits = mx::array({1.0f, 3.0f, 3.0f, 2.0f, 0.0f, -1.0f}, {2, 3});
  SamplingOptions options;
  options.top_k = 1;
  options.top_p = 0.5f;
  std::vector<SampleKey> keys{{1, 0}, {1, 0}};
  EXPECT_EQ(
      numbers(Sampler(options).sample(logits, keys).tokens),
      (std::vector<int>{1, 0}));
}

TEST(Sampler, ChainOfFiltersKeepsTheLikeliest) {
  SamplingOptions options;
  options.temperature = 0.01f;
  options.top_k = 1;
  options.top_p = 0.8f;
  for (int id : draws(options, row({5, 4, 1, 0}), 200)) {
    EXPECT_EQ(id, 0);
  }
}

TEST(Sampler, TopPOfZeroAndOneIsOff) {
  for (float top_p : {0.0f, 1.0f}) {
    SamplingOptions options;
    options.temperature = 1;
    options.top_p = top_p;
    auto ids = draws(options, row({1, 1.1f, 1.2f, 1.3f}), 400);
    EXPECT_EQ(std::set<int>(ids.begin(), ids.end()).size(), 4u);
  }
}

TEST(Sampler, TopPKeepsTheSmallestSetWithThatMass) {
  auto logprobs = mx::log(row({0.15f, 0.5f, 0.05f, 0.3f}));
  for (bool fallback : {false, true}) {
    auto left = [&](float top_p) {
      return kept(apply_top_p(logprobs, top_p, fallback));
    };
    EXPECT_EQ(left(0.4f), (std::set<int>{1}));
    EXPECT_EQ(left(0.7f), (std::set<int>{1, 3}));
    EXPECT_EQ(left(0.9f), (std::set<int>{0, 1, 3}));
    EXPECT_EQ(left(1e-30f), (std::set<int>{1}));
  }
}

TEST(Sampler, MinPWorksOnAVocabularyOf40000) {
  std::vector<float> logits(40000, 0.0f);
  logits[123] = 20;
  logits[39999] = 19.5f;
  logits[7] = 19;
  auto logprobs = log_softmax(row(logits));
  EXPECT_EQ(kept(apply_min_p(logprobs, 0.5f, 1)), (std::set<int>{123, 39999}));
  EXPECT_EQ(kept(apply_min_p(logprobs, 1.0f, 1)), (std::set<int>{123}));
  EXPECT_EQ(
      kept(apply_min_p(logprobs, 1.0f, 3)),
      (std::set<int>{7, 123, 39999}));
  EXPECT_EQ(kept(apply_min_p(logprobs, 1.0f, 40000)).size(), 40000u);
  EXPECT_EQ(kept(apply_min_p(logprobs, 1.0f, 50000)).size(), 40000u);
}

TEST(Sampler, TopKDrawsAllOfTheKLikeliestAndNoOther) {
  SamplingOptions options;
  options.temperature = 10;
  options.top_k = 2;
  auto ids = draws(options, row({3, 1, 5, 4}), 2000);
  EXPECT_EQ(std::set<int>(ids.begin(), ids.end()), (std::set<int>{2, 3}));
}

TEST(Sampler, TopKFromTheVocabularyOnIsOff) {
  auto logits = row({3, 1, 5, 4});
  for (int top_k : {4, 5, INT32_MAX}) {
    EXPECT_EQ(kept(apply_top_k(logits, top_k)).size(), 4u) << top_k;
    SamplingOptions options;
    options.temperature = 100;
    options.top_k = top_k;
    auto ids = draws(options, logits, 200);
    EXPECT_EQ(std::set<int>(ids.begin(), ids.end()).size(), 4u) << top_k;
  }
  EXPECT_EQ(kept(apply_top_k(logits, 3)), (std::set<int>{0, 2, 3}));
}

TEST(Sampler, TopKWithTiesKeepsExactlyK) {
  EXPECT_EQ(kept(apply_top_k(row({1, 1, 1, 1, 1}), 2)).size(), 2u);
}

TEST(Sampler, XtcLeavesTheLeastLikelyOfTheTopChoices) {
  auto logprobs = mx::log(row({0.4f, 0.3f, 0.2f, 0.1f}));
  auto on = mx::array({true}, {1, 1});
  auto off = mx::array({false}, {1, 1});
  EXPECT_EQ(kept(apply_xtc(logprobs, on, 0.15f, {})), (std::set<int>{2, 3}));
  EXPECT_EQ(
      kept(apply_xtc(logprobs, on, 0.15f, {0})),
      (std::set<int>{0, 2, 3}));
  EXPECT_EQ(kept(apply_xtc(logprobs, off, 0.15f, {})).size(), 4u);
  // One top choice, and none: nothing goes.
  EXPECT_EQ(kept(apply_xtc(logprobs, on, 0.35f, {})).size(), 4u);
  EXPECT_EQ(kept(apply_xtc(logprobs, on, 0.5f, {})).size(), 4u);
}

TEST(Sampler, XtcIsAppliedAsOftenAsAsked) {
  SamplingOptions options;
  options.xtc_probability = 0.25f;
  options.xtc_threshold = 0.1f;
  // Unequal: of two equal choices xtc removes neither.
  auto logprobs = repeated(mx::log(row({0.6f, 0.4f})), 2000);
  auto keys = steps(3, 2000);
  auto filtered = Sampler(options).filter(logprobs, keys);
  auto removed = mx::sum(filtered == mx::array(-INFINITY)).item<int>();
  EXPECT_NEAR(removed, 500, 80);
  options.xtc_probability = 1;
  filtered = Sampler(options).filter(logprobs, keys);
  EXPECT_EQ(mx::sum(filtered == mx::array(-INFINITY)).item<int>(), 2000);
}

TEST(Sampler, WhetherXtcAppliesSaysNothingOfTheDraw) {
  SamplingOptions options;
  options.temperature = 1;
  options.xtc_probability = 0.5f;
  // Half of the time 0 is removed, else it has its probability of 0.6.
  auto ids = draws(options, mx::log(row({0.6f, 0.4f})), 4000);
  EXPECT_NEAR(std::count(ids.begin(), ids.end(), 0), 1200, 116);
}

TEST(Sampler, EveryRowKeepsAtLeastOneToken) {
  auto logits = mx::random::normal({64, 50}, mx::float32, mx::random::key(5)) *
      mx::array(6.0f);
  for (float top_p : {1e-20f, 0.3f, 0.999999f}) {
    for (float min_p : {0.0f, 0.5f, 1.0f}) {
      for (float xtc : {0.0f, 1.0f}) {
        for (int top_k : {0, 1, 49, 50}) {
          SamplingOptions options;
          options.temperature = 0.7f;
          options.top_p = top_p;
          options.min_p = min_p;
          options.xtc_probability = xtc;
          options.xtc_threshold = 0;
          options.top_k = top_k;
          auto keys = steps(9, 64);
          Sampler sampler(options);
          auto best = mx::max(sampler.filter(log_softmax(logits), keys), -1);
          EXPECT_TRUE(mx::all(mx::isfinite(best)).item<bool>());
          auto sampled = sampler.sample(logits, keys);
          EXPECT_TRUE(mx::all(mx::isfinite(sampled.check)).item<bool>());
        }
      }
    }
  }
}

TEST(Sampler, DrawsFollowTheDistribution) {
  SamplingOptions options;
  options.temperature = 1;
  std::map<int, int> counts;
  for (int id :
       draws(options, mx::log(row({0.5f, 0.3f, 0.15f, 0.05f})), 8000)) {
    ++counts[id];
  }
  // Four standard deviations.
  EXPECT_NEAR(counts[0], 4000, 179);
  EXPECT_NEAR(counts[1], 2400, 164);
  EXPECT_NEAR(counts[2], 1200, 128);
  EXPECT_NEAR(counts[3], 400, 78);
}

TEST(Sampler, TemperatureComesAfterTheFilters) {
  SamplingOptions options;
  options.temperature = 1000;
  options.top_p = 0.9f;  // at this temperature the row itself is flat
  auto ids = draws(options, mx::log(row({0.6f, 0.38f, 0.01f, 0.01f})), 500);
  EXPECT_EQ(std::set<int>(ids.begin(), ids.end()), (std::set<int>{0, 1}));
}

TEST(Sampler, TinyAndHugeTemperaturesStayFinite) {
  for (float temperature : {1e-45f, 1e-30f, 1e-6f, 3e38f}) {
    SamplingOptions options;
    options.temperature = temperature;
    options.top_k = 2;
    for (int id : draws(options, row({-3, 80, 79, -100}), 50)) {
      EXPECT_TRUE(id == 1 || (temperature > 1 && id == 2)) << temperature;
    }
  }
}

TEST(Sampler, ARowDrawsTheSameAloneAndAmongOthers) {
  auto logits = mx::random::normal({8, 300}, mx::float32, mx::random::key(1));
  SamplingOptions options;
  options.temperature = 1;
  options.top_p = 0.95f;
  options.xtc_probability = 0.5f;
  options.xtc_threshold = 0.005f;
  Sampler sampler(options);
  std::vector<SampleKey> keys;
  for (int64_t i = 0; i < 8; ++i) {
    keys.push_back({i * 7 - 3, 40 - i});
  }
  auto together = numbers(sampler.sample(logits, keys).tokens);
  for (int i = 0; i < 8; ++i) {
    auto alone = mx::slice(logits, {i, 0}, {i + 1, 300});
    auto at = static_cast<size_t>(i);
    EXPECT_EQ(
        numbers(sampler.sample(alone, {&keys[at], 1}).tokens)[0],
        together[at]);
  }
}

TEST(Sampler, SeedsAndStepsGiveDifferentDrawsAndTheSameOnesAgain) {
  auto logits = mx::zeros({1, 1000});
  SamplingOptions options;
  options.temperature = 1;
  std::vector<std::vector<int>> sequences;
  for (int64_t seed :
       {int64_t{0},
        int64_t{1},
        int64_t{2},
        int64_t{-1},
        INT64_MAX,
        INT64_MIN,
        int64_t{1} << 32}) {
    auto once = draws(options, logits, 20, seed);
    EXPECT_EQ(once, draws(options, logits, 20, seed)) << seed;
    EXPECT_GT(std::set<int>(once.begin(), once.end()).size(), 15u) << seed;
    sequences.push_back(once);
  }
  for (size_t i = 0; i < sequences.size(); ++i) {
    for (size_t k = 0; k < i; ++k) {
      EXPECT_NE(sequences[i], sequences[k]);
    }
  }
}

TEST(Sampler, DrawsDoNotTouchTheGlobalGenerator) {
  SamplingOptions options;
  options.temperature = 1;
  mx::random::seed(4);
  auto before = draws(options, mx::zeros({1, 500}), 10);
  auto expected = mx::random::uniform({4});
  mx::random::seed(4);
  auto again = mx::random::uniform({4});
  EXPECT_TRUE(mx::array_equal(expected, again).item<bool>());
  mx::random::seed(77);
  EXPECT_EQ(before, draws(options, mx::zeros({1, 500}), 10));
}

TEST(Sampler, HalfPrecisionLogitsAreWidenedFirst) {
  // In bfloat16 the log-probabilities of 40,000 equal tokens would all round.
  std::vector<float> logits(40000, 3.0f);
  logits[11] = 3.015625f;
  for (auto dtype : {mx::float16, mx::bfloat16}) {
    SamplingOptions options;
    options.temperature = 1e-4f;
    for (int id : draws(options, mx::astype(row(logits), dtype), 5)) {
      EXPECT_EQ(id, 11);
    }
  }
}

TEST(Sampler, OverflowIsReported) {
  for (float temperature : {0.0f, 1.0f}) {
    SamplingOptions options;
    options.temperature = temperature;
    options.top_p = 0.9f;
    options.min_p = 0.1f;
    options.top_k = 2;
    for (const auto& logits :
         {row({NAN, NAN, NAN, NAN}),
          row({1, INFINITY, 2, 3}),
          row({-INFINITY, -INFINITY, -INFINITY, -INFINITY})}) {
      SampleKey key{1, 0};
      auto sampled = Sampler(options).sample(logits, {&key, 1});
      EXPECT_FALSE(std::isfinite(sampled.check.item<float>()));
    }
  }
}

TEST(Sampler, MaskedTokensAreNeverDrawn) {
  SamplingOptions options;
  options.temperature = 5;
  for (int id : draws(options, row({-INFINITY, 0, -INFINITY, 0}), 1000)) {
    EXPECT_TRUE(id == 1 || id == 3);
  }
}

}  // namespace
}  // namespace mlxx::generate
