#include "mlxx/kernels/top_p/top_p.h"

#include <cmath>

#include <gtest/gtest.h>

#include "mlxx/base/error.h"

namespace mlxx::kernels {
namespace {

mx::array log_softmax(const mx::array& logits) {
  return logits - mx::logsumexp(logits, -1, true);
}

// Tokens that one of the two keeps and the other does not.
int disagreements(const mx::array& logprobs, float top_p) {
  auto fast = top_p_threshold(logprobs, top_p, false);
  auto plain = top_p_threshold(logprobs, top_p, true);
  EXPECT_EQ(fast.shape(), plain.shape());
  return mx::sum((logprobs < fast) != (logprobs < plain)).item<int>();
}

TEST(TopP, KernelKeepsWhatTheFallbackKeeps) {
  for (int size : {1, 2, 63, 64, 65, 320, 321, 1000}) {
    for (float spread : {0.0f, 0.1f, 3.0f, 20.0f}) {
      auto logprobs = log_softmax(
          mx::random::normal({5, size}, mx::float32, mx::random::key(4)) *
          mx::array(spread));
      for (float top_p : {1e-20f, 0.3f, 0.9f, 0.95f, 0.999f}) {
        EXPECT_EQ(disagreements(logprobs, top_p), 0)
            << size << " " << spread << " " << top_p;
      }
    }
  }
}

// Sums of many float32 terms differ in their last bits, so long rows are held
// against the definition, in float64.
TEST(TopP, KeepsTheSmallestMassThatIsEnough) {
  for (int size : {5461, 50000}) {
    for (float spread : {0.1f, 3.0f, 10.0f}) {
      auto logprobs = log_softmax(
          mx::random::normal({1, size}, mx::float32, mx::random::key(4)) *
          mx::array(spread));
      mx::eval(logprobs);
      const float* row = logprobs.data<float>();
      for (float top_p : {0.3f, 0.9f, 0.999f}) {
        for (bool fallback : {false, true}) {
          float least =
              top_p_threshold(logprobs, top_p, fallback).item<float>();
          double likelier = 0;
          double kept = 0;
          double total = 0;
          for (int i = 0; i < size; ++i) {
            double p = std::exp(static_cast<double>(row[i]));
            total += p;
            kept += row[i] >= least ? p : 0;
            likelier += row[i] > least ? p : 0;
          }
          EXPECT_LT(likelier / total, top_p + 1e-4) << size << " " << spread;
          EXPECT_GE(kept / total, top_p - 1e-4) << size << " " << spread;
        }
      }
    }
  }
}

TEST(TopP, TiesWithTheLastTokenStay) {
  auto logprobs = mx::log(mx::array({0.4f, 0.2f, 0.2f, 0.2f}, {1, 4}));
  for (bool fallback : {false, true}) {
    auto threshold = top_p_threshold(logprobs, 0.5f, fallback);
    EXPECT_EQ(mx::sum(logprobs >= threshold).item<int>(), 4);
  }
}

TEST(TopP, ReadsViewsAndManyRows) {
  auto base = log_softmax(
      mx::random::normal({300, 40}, mx::float32, mx::random::key(9)));
  EXPECT_EQ(disagreements(mx::transpose(base), 0.8f), 0);
  auto some = mx::slice(base, {0, 0}, {300, 40}, {3, 2});
  EXPECT_EQ(disagreements(log_softmax(some), 0.8f), 0);
}

TEST(TopP, RemovedAndMissingNumbersDoNoHarm) {
  auto inf = INFINITY;
  auto removed = mx::array({-inf, -0.1f, -inf, -3.0f, -inf}, {1, 5});
  EXPECT_EQ(disagreements(removed, 0.99f), 0);
  for (float bad : {NAN, inf, -inf}) {
    auto threshold = top_p_threshold(mx::full({2, 200}, bad), 0.9f, false);
    mx::eval(threshold);
    EXPECT_EQ(threshold.shape(), (mx::Shape{2, 1}));
  }
}

TEST(TopP, RefusesOtherShapes) {
  EXPECT_THROW(top_p_threshold(mx::zeros({4}), 0.9f, false), Error);
  EXPECT_THROW(top_p_threshold(mx::zeros({1, 4}), 1.0f, false), Error);
  EXPECT_THROW(
      top_p_threshold(mx::zeros({1, 4}, mx::float16), 0.9f, false),
      Error);
}

}  // namespace
}  // namespace mlxx::kernels
