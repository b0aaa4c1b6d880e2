#include "mlxx/generate/logits_processors.h"

#include <gtest/gtest.h>

namespace mlxx::generate {
namespace {

mx::array row(std::vector<float> values) {
  auto n = static_cast<mx::ShapeElem>(values.size());
  return mx::array(values.begin(), {1, n}, mx::float32);
}

mx::array ids(std::vector<int> values) {
  auto n = static_cast<mx::ShapeElem>(values.size());
  return mx::array(values.begin(), {1, n}, mx::int32);
}

std::vector<float> applied(
    const SamplingOptions& options,
    const mx::array& logits,
    const mx::array& tokens) {
  auto result = LogitsProcessors(options).apply(logits, tokens);
  EXPECT_EQ(result.dtype(), mx::float32);
  mx::eval(result);
  return {result.data<float>(), result.data<float>() + result.size()};
}

TEST(LogitsProcessors, NothingToDoByDefault) {
  EXPECT_TRUE(LogitsProcessors({}).empty());
  for (float off : {0.0f, 1.0f}) {
    SamplingOptions options;
    options.repetition_penalty = off;
    EXPECT_TRUE(LogitsProcessors(options).empty());
    EXPECT_FALSE(LogitsProcessors(options).needs_tokens());
  }
}

TEST(LogitsProcessors, RepetitionIsSignAwareAndOncePerToken) {
  SamplingOptions options;
  options.repetition_penalty = 2;
  EXPECT_EQ(
      applied(options, row({4, -4, 3, 0}), ids({0, 0, 1, 0, 1})),
      (std::vector<float>{2, -8, 3, 0}));
}

TEST(LogitsProcessors, PresenceCountsOnceAndFrequencyEachTime) {
  SamplingOptions options;
  options.presence_penalty = 0.5f;
  EXPECT_EQ(
      applied(options, row({4, 4, 4}), ids({2, 0, 2, 2})),
      (std::vector<float>{3.5f, 4, 3.5f}));
  options.presence_penalty = 0;
  options.frequency_penalty = 0.5f;
  EXPECT_EQ(
      applied(options, row({4, 4, 4}), ids({2, 0, 2, 2})),
      (std::vector<float>{3.5f, 4, 2.5f}));
  options.frequency_penalty = -0.5f;
  EXPECT_EQ(
      applied(options, row({4, 4, 4}), ids({2, 0, 2, 2})),
      (std::vector<float>{4.5f, 4, 5.5f}));
}

TEST(LogitsProcessors, EachPenaltyHasItsWindow) {
  SamplingOptions options;
  options.repetition_penalty = 2;
  options.repetition_context_size = 1;
  options.presence_penalty = 1;
  options.penalty_context_size = 2;
  EXPECT_EQ(LogitsProcessors(options).window(), 2);
  EXPECT_EQ(
      applied(options, row({8, 8, 8, 8}), ids({0, 1, 2})),
      (std::vector<float>{8, 7, 3, 8}));
  options.penalty_context_size = 0;  // all
  EXPECT_EQ(LogitsProcessors(options).window(), 0);
  EXPECT_EQ(
      applied(options, row({8, 8, 8, 8}), ids({0, 1, 2})),
      (std::vector<float>{7, 7, 3, 8}));
  options.repetition_penalty = 1;
  options.penalty_context_size = 7;
  EXPECT_EQ(LogitsProcessors(options).window(), 7);
}

TEST(LogitsProcessors, BiasIsAddedFirstAndClamped) {
  SamplingOptions options;
  options.logit_bias = {{1, 2.5f}, {3, -1000}, {2, 1000}};
  EXPECT_FALSE(LogitsProcessors(options).needs_tokens());
  EXPECT_EQ(
      applied(options, row({1, 1, 1, 1}), ids({0})),
      (std::vector<float>{1, 3.5f, 101, -99}));
  // The penalty sees the biased logit's sign.
  options.logit_bias = {{0, -3}};
  options.repetition_penalty = 2;
  EXPECT_EQ(
      applied(options, row({1, 1}), ids({0})),
      (std::vector<float>{-4, 1}));
}

TEST(LogitsProcessors, RowsOfABatchAreIndependent) {
  SamplingOptions options;
  options.logit_bias = {{0, 1}};
  options.frequency_penalty = 1;
  auto logits = mx::array({5.0f, 5.0f, 7.0f, 7.0f}, {2, 2});
  auto tokens = mx::array({1, 1, 0, 1}, {2, 2});
  EXPECT_EQ(applied(options, logits, tokens), (std::vector<float>{6, 3, 7, 6}));
}

TEST(LogitsProcessors, HalfPrecisionIsWidened) {
  SamplingOptions options;
  options.presence_penalty = 0.001f;
  auto result =
      applied(options, mx::astype(row({64, 64}), mx::bfloat16), ids({0}));
  EXPECT_FLOAT_EQ(result[0], 63.999f);
}

TEST(LogitsProcessors, TenThousandBiases) {
  SamplingOptions options;
  for (int id = 0; id < 10000; ++id) {
    options.logit_bias[id] = static_cast<float>(id % 100);
  }
  auto result = applied(options, mx::zeros({1, 10001}), ids({0}));
  EXPECT_EQ(result[9999], 99);
  EXPECT_EQ(result[10000], 0);
}

}  // namespace
}  // namespace mlxx::generate
