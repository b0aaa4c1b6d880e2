// The kernel that chooses tokens against the plain operations.
#include "mlxx/generate/token_choices.h"

#include <cmath>
#include <random>
#include <set>

#include <gtest/gtest.h>

#include "mlxx/base/thread_pool.h"

namespace mlxx::generate {
namespace {

kernels::Selection plain() {
  kernels::Selection selection;
  selection.fallback = true;
  return selection;
}

std::vector<kernels::Selection> kernel_selections() {
  std::vector<kernels::Selection> all;
  for (auto set : kernels::available_instruction_sets()) {
    kernels::Selection selection;
    selection.instruction_set = set;
    all.push_back(selection);
    selection.threads = std::make_shared<ThreadPool>(2);
    all.push_back(selection);
  }
  return all;
}

std::vector<int> ints(const mx::array& a) {
  auto wide = mx::contiguous(mx::astype(a, mx::int32));
  mx::eval(wide);
  return {wide.data<int32_t>(), wide.data<int32_t>() + wide.size()};
}

std::vector<float> floats(const mx::array& a) {
  auto wide = mx::contiguous(mx::astype(a, mx::float32));
  mx::eval(wide);
  return {wide.data<float>(), wide.data<float>() + wide.size()};
}

class Random {
 public:
  explicit Random(unsigned seed) : engine_(seed) {}
  bool often() {
    return engine_() % 2 == 0;
  }
  float between(float low, float high) {
    return low + (high - low) * static_cast<float>(engine_() % 10001) / 10000;
  }
  int upto(int most) {
    return static_cast<int>(engine_() % static_cast<unsigned>(most + 1));
  }

 private:
  std::mt19937 engine_;
};

SamplingOptions random_options(Random& random, int vocabulary) {
  SamplingOptions options;
  options.temperature = random.upto(5) == 0 ? 0 : random.between(0.05f, 2);
  if (random.often()) {
    options.top_p = random.between(0.01f, 0.999f);
  }
  if (random.often()) {
    options.min_p = random.between(0.0001f, 0.3f);
    options.min_tokens_to_keep = 1 + random.upto(4);
  }
  if (random.often()) {
    options.xtc_probability = random.between(0.3f, 1);
    options.xtc_threshold = random.between(0.001f, 0.5f);
    options.xtc_special_tokens = std::vector<int32_t>{
        random.upto(vocabulary - 1),
        random.upto(vocabulary - 1)};
  }
  if (random.often()) {
    options.top_k = random.upto(vocabulary + 2);
  }
  return options;
}

mx::array logits_of(int rows, int vocabulary, float spread, int seed) {
  return mx::multiply(
      mx::random::normal(
          {rows, vocabulary},
          mx::float32,
          mx::random::key(static_cast<uint64_t>(seed))),
      mx::array(spread));
}

TEST(TokenChoices, NumbersAreThoseOfMlx) {
  for (int count : {1, 2, 3, 64, 65, 1000, 1001}) {
    SampleKey key{count * 77, 5};
    kernels::RandomKey own = random_key(key, Draw::token);
    auto expected = floats(mx::random::uniform(
        {1, count},
        mx::float32,
        mx::array({own.first, own.second}, mx::uint32)));
    for (int i = 0; i < count; ++i) {
      ASSERT_EQ(kernels::uniform_number(own, i, count), expected[i])
          << i << " of " << count;
    }
  }
}

TEST(TokenChoices, AreThoseOfThePlainOperations) {
  constexpr int kRows = 3;
  Random random(4);
  auto selections = kernel_selections();
  for (int trial = 0; trial < 250; ++trial) {
    const int sizes[] = {1, 2, 5, 63, 64, 65, 129, 1000, 1001, 4999};
    int vocabulary = sizes[random.upto(9)];
    auto options = random_options(random, vocabulary);
    auto logits = logits_of(kRows, vocabulary, random.between(0.1f, 6), trial);
    std::vector<SampleKey> keys;
    for (int row = 0; row < kRows; ++row) {
      keys.push_back({trial * 31 + row, random.upto(100)});
    }
    auto expected = Sampler(options, plain()).sample(logits, keys);
    const auto& selection = selections[trial % selections.size()];
    auto chosen = Sampler(options, selection).sample(logits, keys);
    ASSERT_EQ(ints(chosen.tokens), ints(expected.tokens))
        << "trial " << trial << ", " << vocabulary << " tokens, temperature "
        << options.temperature << ", top_p " << options.top_p << ", min_p "
        << options.min_p << ", top_k " << options.top_k << ", xtc "
        << options.xtc_probability;
    auto checks = floats(chosen.check);
    auto expected_checks = floats(expected.check);
    for (int row = 0; row < kRows; ++row) {
      EXPECT_NEAR(checks[row], expected_checks[row], 1e-4f);
    }
  }
}

TEST(TokenChoices, OfARowAreTheSameInEveryBatch) {
  Random random(9);
  for (const auto& selection : kernel_selections()) {
    auto options = random_options(random, 3000);
    options.temperature = 0.9f;
    auto logits = logits_of(7, 3000, 3, 5);
    std::vector<SampleKey> keys;
    for (int row = 0; row < 7; ++row) {
      keys.push_back({row, 3});
    }
    Sampler sampler(options, selection);
    auto together = sampler.sample(logits, keys);
    for (int row = 0; row < 7; ++row) {
      auto alone = sampler.sample(
          mx::slice(logits, {row, 0}, {row + 1, 3000}),
          std::span(keys).subspan(row, 1));
      EXPECT_EQ(ints(alone.tokens)[0], ints(together.tokens)[row]);
      EXPECT_EQ(floats(alone.check)[0], floats(together.check)[row]);
    }
  }
}

TEST(TokenChoices, TellWhatIsNotANumber) {
  const float inf = INFINITY;
  const float nan = NAN;
  for (const auto& selection : kernel_selections()) {
    for (float temperature : {0.0f, 1.0f}) {
      SamplingOptions options;
      options.temperature = temperature;
      Sampler sampler(options, selection);
      SampleKey key{1, 2};
      auto check = [&](std::vector<float> row) {
        mx::array logits(row.begin(), {1, static_cast<int>(row.size())});
        auto chosen = sampler.sample(logits, {&key, 1});
        int token = ints(chosen.tokens)[0];
        EXPECT_TRUE(token >= 0 && token < std::ssize(row));
        return floats(chosen.check)[0];
      };
      EXPECT_FALSE(std::isfinite(check({nan, nan, nan})));
      EXPECT_FALSE(std::isfinite(check({-inf, -inf, -inf})));
      EXPECT_FALSE(std::isfinite(check({1, inf, 2})));
      EXPECT_TRUE(std::isfinite(check({-inf, 3, -inf})));
      if (temperature > 0) {
        EXPECT_FALSE(std::isfinite(check({1, nan, 2})));
      }
    }
  }
}

TEST(TokenChoices, OfEqualOnesAreTheFirst) {
  for (const auto& selection : kernel_selections()) {
    SamplingOptions options;
    SampleKey key{1, 2};
    auto flat = mx::zeros({1, 200}, mx::float32);
    EXPECT_EQ(
        ints(Sampler(options, selection).sample(flat, {&key, 1}).tokens)[0],
        0);
    // A flat row is drawn from all of its tokens alike.
    options.temperature = 1;
    std::set<int> seen;
    for (int64_t step = 0; step < 300; ++step) {
      SampleKey each{1, step};
      seen.insert(
          ints(Sampler(options, selection).sample(flat, {&each, 1}).tokens)[0]);
    }
    EXPECT_GT(seen.size(), 130u);
  }
}

}  // namespace
}  // namespace mlxx::generate
