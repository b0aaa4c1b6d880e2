// A batch of rows of random settings against each row by itself, by the decode
// loop's own LogitsProcessors and Sampler.
#include "mlxx/engine/batch_sampler.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include <gtest/gtest.h>

#include "mlxx/base/thread_pool.h"
#include "mlxx/generate/logits_processors.h"
#include "mlxx/generate/token_choices.h"

namespace mlxx::engine {
namespace {

constexpr int kVocabulary = 700;

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

struct Case {
  std::vector<generate::SamplingOptions> options;
  std::vector<RowChoice> rows;
  std::vector<int32_t> fed;
  std::vector<TokenMask> masks;  // none or one for each row
};

class Random {
 public:
  explicit Random(unsigned seed) : engine_(seed) {}
  bool one_in(int n) {
    return upto(n - 1) == 0;
  }
  float between(float low, float high) {
    return low + (high - low) * static_cast<float>(upto(10000)) / 10000;
  }
  int upto(int most) {
    return static_cast<int>(engine_() % static_cast<unsigned>(most + 1));
  }
  int32_t token() {
    return upto(kVocabulary - 1);
  }

 private:
  std::mt19937 engine_;
};

generate::SamplingOptions random_options(Random& random) {
  generate::SamplingOptions options;
  options.temperature = random.one_in(3) ? 0 : random.between(0.1f, 1.5f);
  if (random.one_in(2)) {
    options.top_p = random.between(0.1f, 0.99f);
  }
  if (random.one_in(3)) {
    options.top_k = 1 + random.upto(50);
  }
  if (random.one_in(3)) {
    options.min_p = random.between(0.001f, 0.2f);
  }
  if (random.one_in(4)) {
    options.xtc_probability = 0.7f;
    options.xtc_special_tokens = std::vector<int32_t>{1, 2};
  }
  if (random.one_in(3)) {
    options.repetition_penalty = random.between(0.7f, 1.6f);
    options.repetition_context_size = random.upto(8);
  }
  if (random.one_in(3)) {
    options.presence_penalty = random.between(-2, 2);
    options.penalty_context_size = random.upto(8);
  }
  if (random.one_in(3)) {
    options.frequency_penalty = random.between(-2, 2);
    options.penalty_context_size = random.upto(8);
  }
  for (int i = random.one_in(3) ? 6 : 0; i > 0; --i) {
    options.logit_bias[random.token()] = random.between(-120, 20);
  }
  return options;
}

// Few different tokens, so that some occur twice in a window.
std::vector<int32_t> random_history(Random& random, int length) {
  std::vector<int32_t> tokens;
  for (int i = 0; i < length; ++i) {
    tokens.push_back(random.upto(9) * 7);
  }
  return tokens;
}

Case random_case(Random& random) {
  Case made;
  int count = 1 + random.upto(8);
  for (int i = 0; i < count; ++i) {
    made.options.push_back(
        i > 0 && random.one_in(3) ? made.options.back()
                                  : random_options(random));
  }
  bool masked = random.one_in(2);
  for (int i = 0; i < count; ++i) {
    RowChoice row;
    row.sampling = &made.options[static_cast<size_t>(i)];
    row.key = {random.upto(1000), random.upto(1000)};
    generate::LogitsProcessors processors(*row.sampling);
    if (processors.needs_tokens()) {
      int window = processors.window() > 0 ? processors.window() - 1 : 12;
      row.recent = random_history(random, random.upto(window));
    }
    if (random.one_in(2)) {
      row.top_logprobs = random.upto(6);
    }
    made.rows.push_back(row);
    made.fed.push_back(random.upto(9) * 7);
    if (masked) {
      TokenMask mask;
      int words = random.one_in(3) ? 0 : (kVocabulary + 31) / 32;
      for (int word = 0; word < words; ++word) {
        mask.push_back(static_cast<uint32_t>(random.upto(0x7ffffffe)) | 16u);
      }
      made.masks.push_back(mask);
    }
  }
  return made;
}

// The row's logits as its penalties and mask leave them.
mx::array processed(const Case& all, const mx::array& logits, int row) {
  auto index = static_cast<size_t>(row);
  generate::LogitsProcessors processors(all.options[index]);
  mx::array own = mx::slice(logits, {row, 0}, {row + 1, kVocabulary});
  if (!processors.empty()) {
    std::vector<int32_t> window = all.rows[index].recent;
    window.push_back(all.fed[index]);
    own = processors.apply(
        own,
        mx::array(
            window.begin(),
            {1, static_cast<int>(window.size())},
            mx::int32));
  }
  if (!all.masks.empty() && !all.masks[index].empty()) {
    std::vector<float> removed;
    for (int id = 0; id < kVocabulary; ++id) {
      bool stays =
          all.masks[index][static_cast<size_t>(id) / 32] >> (id % 32) & 1;
      removed.push_back(stays ? 0 : -INFINITY);
    }
    own = mx::add(own, mx::array(removed.begin(), {1, kVocabulary}));
  }
  return own;
}

std::vector<kernels::Selection> selections() {
  kernels::Selection plain;
  plain.fallback = true;
  kernels::Selection fast = generate::sampling_kernels();
  fast.fallback = false;
  kernels::Selection threads = fast;
  threads.threads = std::make_shared<ThreadPool>(3);
  return {plain, fast, threads};
}

void expect_logprobs(
    const Case& all,
    const mx::array& logits,
    const ChosenTokens& chosen) {
  auto expected = floats(
      mx::subtract(logits, mx::logsumexp(logits, -1, /*keepdims=*/true)));
  auto tokens = ints(chosen.tokens);
  for (size_t row = 0; row < all.rows.size(); ++row) {
    const auto& wanted = all.rows[row].top_logprobs;
    if (!wanted) {
      continue;
    }
    auto of = [&](int token) {
      return expected[row * kVocabulary + static_cast<size_t>(token)];
    };
    EXPECT_NEAR(floats(*chosen.logprobs)[row], of(tokens[row]), 1e-4f);
    if (*wanted == 0) {
      continue;
    }
    auto width = static_cast<size_t>(chosen.top_tokens->shape(1));
    std::vector<int> order(kVocabulary);
    std::iota(order.begin(), order.end(), 0);
    std::ranges::stable_sort(order, [&](int a, int b) {
      return of(a) > of(b);
    });
    for (size_t i = 0; i < static_cast<size_t>(*wanted); ++i) {
      EXPECT_EQ(ints(*chosen.top_tokens)[row * width + i], order[i]);
      EXPECT_NEAR(
          floats(*chosen.top_logprobs)[row * width + i],
          of(order[i]),
          1e-4f);
    }
  }
}

TEST(BatchSampler, EachRowChoosesWhatItWouldAlone) {
  Random random(3);
  auto all_selections = selections();
  for (int trial = 0; trial < 120; ++trial) {
    SCOPED_TRACE(trial);
    Case all = random_case(random);
    auto count = static_cast<int>(all.rows.size());
    mx::array logits = mx::multiply(
        mx::random::normal(
            {count, kVocabulary},
            mx::float32,
            mx::random::key(static_cast<uint64_t>(trial))),
        mx::array(3.0f));
    mx::array fed(all.fed.begin(), {count}, mx::int32);
    const auto& selection = all_selections[static_cast<size_t>(trial) % 3];
    auto chosen = choose_tokens(logits, fed, all.rows, all.masks, selection);
    auto tokens = ints(chosen.tokens);
    auto checks = floats(chosen.check);
    for (int row = 0; row < count; ++row) {
      auto index = static_cast<size_t>(row);
      auto alone =
          generate::Sampler(all.options[index], selection)
              .sample(processed(all, logits, row), {&all.rows[index].key, 1});
      EXPECT_EQ(tokens[index], ints(alone.tokens)[0]) << "row " << row;
      EXPECT_EQ(checks[index], floats(alone.check)[0]) << "row " << row;
      if (!all.masks.empty() && !all.masks[index].empty()) {
        auto token = static_cast<size_t>(tokens[index]);
        EXPECT_TRUE(all.masks[index][token / 32] >> (token % 32) & 1);
      }
    }
    expect_logprobs(all, logits, chosen);
  }
}

TEST(BatchSampler, RefusesWhatDoesNotFit) {
  generate::SamplingOptions options;
  std::vector<RowChoice> rows(2);
  rows[0].sampling = rows[1].sampling = &options;
  mx::array logits = mx::zeros({2, 100}, mx::float32);
  mx::array fed = mx::zeros({2}, mx::int32);
  for (const auto& selection : selections()) {
    std::vector<TokenMask> one(1);
    EXPECT_THROW(choose_tokens(logits, fed, rows, one, selection), Error);
    std::vector<TokenMask> narrow(2, TokenMask(3, 1));
    EXPECT_THROW(choose_tokens(logits, fed, rows, narrow, selection), Error);
    EXPECT_THROW(
        choose_tokens(
            logits,
            fed,
            std::span<const RowChoice>(rows).first(1),
            {},
            selection),
        Error);
  }
}

TEST(BatchSampler, TellsRowsWithoutNumbers) {
  generate::SamplingOptions options;
  std::vector<RowChoice> rows(3);
  for (auto& row : rows) {
    row.sampling = &options;
  }
  mx::array logits = mx::concatenate(
      {mx::full({1, 40}, NAN), mx::zeros({2, 40}, mx::float32)},
      0);
  mx::array fed = mx::zeros({3}, mx::int32);
  std::vector<TokenMask> masks(3);
  masks[2] = {0, 0};  // allows nothing
  for (const auto& selection : selections()) {
    for (float temperature : {0.0f, 1.0f}) {
      options.temperature = temperature;
      auto check =
          floats(choose_tokens(logits, fed, rows, masks, selection).check);
      EXPECT_FALSE(std::isfinite(check[0]));
      EXPECT_TRUE(std::isfinite(check[1]));
      EXPECT_FALSE(std::isfinite(check[2]));
    }
  }
}

}  // namespace
}  // namespace mlxx::engine
