// Tokens chosen by libmlxx_cuda, against MLX's operations with the same random
// numbers. Needs an NVIDIA GPU; skipped elsewhere.
#include <cmath>

#include <gtest/gtest.h>

#include "mlxx/core/device.h"
#include "mlxx/engine/batch_sampler.h"
#include "mlxx/generate/token_choices.h"
#include "mlxx/kernels/cuda_plugin/cuda_plugin.h"

namespace mlxx::engine {
namespace {

using generate::SamplingOptions;

std::vector<SamplingOptions> settings() {
  std::vector<SamplingOptions> all;
  for (float temperature : {0.0f, 0.4f, 1.0f, 1.7f}) {
    for (float top_p : {1.0f, 0.6f}) {
      for (int top_k : {0, 40}) {
        for (float min_p : {0.0f, 0.05f}) {
          SamplingOptions options;
          options.temperature = temperature;
          options.top_p = top_p;
          options.top_k = top_k;
          options.min_p = min_p;
          options.min_tokens_to_keep = top_k > 0 ? 3 : 1;
          all.push_back(options);
        }
      }
    }
  }
  return all;
}

class CudaChoice : public testing::Test {
 protected:
  void SetUp() override {
    if (backend() != Backend::cuda) {
      GTEST_SKIP() << "MLX computes on no NVIDIA GPU here";
    }
    std::string why;
    ASSERT_NE(kernels::cuda_plugin(&why), nullptr) << why;
    plain_.fallback = true;
  }

  std::vector<RowChoice> rows(std::optional<int> top_logprobs = {}) const {
    std::vector<RowChoice> rows;
    for (const SamplingOptions& options : options_) {
      rows.push_back(
          {&options, {int64_t(rows.size()) * 7, 3}, {}, top_logprobs});
    }
    return rows;
  }
  mx::array logits(int vocabulary) const {
    return mx::random::normal(
               {int(options_.size()), vocabulary},
               mx::float32,
               mx::random::key(4)) *
        mx::array(3.0f);
  }
  mx::array fed() const {
    return mx::zeros({int(options_.size())}, mx::int32);
  }

  std::vector<SamplingOptions> options_ = settings();
  kernels::Selection kernels_;
  kernels::Selection plain_;
};

TEST_F(CudaChoice, IsThatOfMlxsOperations) {
  for (int vocabulary : {1, 257, 20000}) {
    mx::array x = logits(vocabulary);
    auto got = choose_tokens(x, fed(), rows(0), {}, kernels_);
    auto expected = choose_tokens(x, fed(), rows(0), {}, plain_);
    mx::eval(got.arrays());
    mx::eval(expected.arrays());
    for (int i = 0; i < x.shape(0); ++i) {
      EXPECT_EQ(
          got.tokens.data<int32_t>()[i],
          expected.tokens.data<int32_t>()[i])
          << "row " << i << " of " << vocabulary;
      EXPECT_NEAR(
          got.logprobs->data<float>()[i],
          expected.logprobs->data<float>()[i],
          1e-4);
      EXPECT_TRUE(std::isfinite(got.check.data<float>()[i]));
    }
  }
}

TEST_F(CudaChoice, KeepsToMasksAndSeesWhatIsNoNumber) {
  constexpr int kVocabulary = 100;
  std::vector<TokenMask> masks;
  std::vector<std::vector<uint32_t>> words;
  for (size_t i = 0; i < options_.size(); ++i) {
    words.push_back({0, 0x10u << (i % 4), 0, 0});
  }
  for (const auto& word : words) {
    masks.emplace_back(word);
  }
  auto masked =
      choose_tokens(logits(kVocabulary), fed(), rows(), masks, kernels_);
  mx::eval(masked.arrays());
  auto damaged = choose_tokens(
      mx::full({int(options_.size()), kVocabulary}, NAN, mx::float32),
      fed(),
      rows(),
      {},
      kernels_);
  mx::eval(damaged.arrays());
  for (size_t i = 0; i < options_.size(); ++i) {
    EXPECT_EQ(masked.tokens.data<int32_t>()[i], 36 + int(i % 4)) << i;
    EXPECT_TRUE(std::isfinite(masked.check.data<float>()[i])) << i;
    EXPECT_FALSE(std::isfinite(damaged.check.data<float>()[i])) << i;
  }
}

// More rows than one launch has, and tokens that are used before they are read.
TEST_F(CudaChoice, FeedsWhatFollows) {
  SamplingOptions greedy;
  std::vector<RowChoice> many(150, RowChoice{&greedy, {0, 0}, {}, {}});
  mx::array x = mx::random::normal({150, 300}, mx::float32, mx::random::key(9));
  mx::array tokens = mx::zeros({150}, mx::int32);
  mx::array expected = tokens;
  for (int step = 0; step < 20; ++step) {
    mx::array own = mx::roll(x, step, 1);
    auto chosen = choose_tokens(own, tokens, many, {}, kernels_);
    tokens = chosen.tokens + tokens;
    mx::async_eval(tokens);
    expected = mx::astype(mx::argmax(own, -1), mx::int32) + expected;
  }
  EXPECT_TRUE(mx::array_equal(tokens, expected).item<bool>());
}

}  // namespace
}  // namespace mlxx::engine
