#include "mlxx/kernels/attention/ragged_attention.h"

#include <numeric>

#include <gtest/gtest.h>

#include "mlxx/base/error.h"
#include "tests/kernels/relative_error.h"

namespace mlxx::kernels {
namespace {

constexpr int kHeads = 4;
constexpr int kKvHeads = 2;
constexpr int kSize = 32;

struct Rows {
  mx::array q;
  mx::array k;
  mx::array v;
};

Rows random_rows(int tokens, int size = kSize) {
  return {
      normal({tokens, kHeads, size}, 1),
      normal({tokens, kKvHeads, size}, 2),
      normal({tokens, kKvHeads, size}, 3)};
}

mx::array rows(const mx::array& x, int begin, int count) {
  return mx::slice(x, {begin, 0, 0}, {begin + count, x.shape(1), x.shape(2)});
}

// One text, written out: [L, H, D].
mx::array written_out(const Rows& text, const RaggedAttention& job) {
  auto heads_first = [](const mx::array& x, int times) {
    return mx::repeat(mx::transpose(x, {1, 0, 2}), times, 0);
  };
  int length = text.q.shape(0);
  mx::array q = heads_first(text.q, 1);
  mx::array k = heads_first(text.k, kHeads / kKvHeads);
  mx::array v = heads_first(text.v, kHeads / kKvHeads);
  mx::array scores = mx::multiply(
      mx::matmul(q, mx::swapaxes(k, -1, -2)),
      mx::array(job.scale));
  std::vector<float> hidden;
  for (int i = 0; i < length; ++i) {
    for (int j = 0; j < length; ++j) {
      bool is_seen = (job.reach == 0 || std::abs(i - j) <= job.reach) &&
          (!job.causal || j <= i);
      hidden.push_back(is_seen ? 0.0f : -1e30f);
    }
  }
  scores = mx::add(scores, mx::array(hidden.data(), {length, length}));
  return mx::transpose(mx::matmul(mx::softmax(scores, -1), v), {1, 0, 2});
}

Selection chosen(bool fallback) {
  Selection selection = select_best();
  selection.fallback = fallback;
  return selection;
}

const std::vector<int> kLengths = {1, 7, 7, 64, 130, 300, 300};

TEST(RaggedAttention, MatchesTheFormulaTextByText) {
  int tokens = std::accumulate(kLengths.begin(), kLengths.end(), 0);
  Rows all = random_rows(tokens);
  for (int reach : {0, 1, 40, 128}) {
    for (bool causal : {false, true}) {
      for (bool fallback : {false, true}) {
        RaggedAttention job{kLengths, 0.2f, reach, causal};
        mx::array got =
            ragged_attention(all.q, all.k, all.v, job, chosen(fallback));
        int begin = 0;
        for (int length : kLengths) {
          Rows text{
              rows(all.q, begin, length),
              rows(all.k, begin, length),
              rows(all.v, begin, length)};
          EXPECT_LT(
              relative_error(rows(got, begin, length), written_out(text, job)),
              2e-6)
              << length << " tokens, reach " << reach << ", causal " << causal
              << ", fallback " << fallback;
          begin += length;
        }
      }
    }
  }
}

TEST(RaggedAttention, ATextsBitsDoNotDependOnTheOthers) {
  if (mx::default_device() != mx::Device::cpu) {
    GTEST_SKIP() << "promised for the CPU only";
  }
  int tokens = std::accumulate(kLengths.begin(), kLengths.end(), 0);
  Rows all = random_rows(tokens);
  for (int reach : {0, 40}) {
    RaggedAttention job{kLengths, 0.2f, reach, false};
    mx::array got = ragged_attention(all.q, all.k, all.v, job, chosen(false));
    Selection one = chosen(false);
    one.threads = std::make_shared<ThreadPool>(1);
    int begin = 0;
    for (int length : kLengths) {
      mx::array alone = ragged_attention(
          rows(all.q, begin, length),
          rows(all.k, begin, length),
          rows(all.v, begin, length),
          {{length}, 0.2f, reach, false},
          one);
      EXPECT_TRUE(same_bits(rows(got, begin, length), alone)) << length;
      begin += length;
    }
  }
}

TEST(RaggedAttention, HeadsOfAnySizeGoThroughPlainOperations) {
  Rows all = random_rows(20, 12);
  RaggedAttention job{{20}, 0.3f, 3, false};
  mx::array got = ragged_attention(all.q, all.k, all.v, job, chosen(false));
  EXPECT_LT(relative_error(got, written_out(all, job)), 2e-6);
}

TEST(RaggedAttention, GradientsAreThoseOfThePlainOperations) {
  Rows all = random_rows(25);
  auto gradient = [&](bool fallback) {
    auto loss = [&](const std::vector<mx::array>& x) {
      mx::array out = ragged_attention(
          x[0],
          x[1],
          x[2],
          {{5, 20}, 0.2f, 4, false},
          chosen(fallback));
      return mx::sum(mx::square(out));
    };
    return mx::grad(loss, std::vector<int>{0, 1, 2})({all.q, all.k, all.v});
  };
  auto own = gradient(false);
  auto plain = gradient(true);
  for (int i = 0; i < 3; ++i) {
    EXPECT_LT(relative_error(own[i], plain[i]), 1e-5) << i;
  }
}

TEST(RaggedAttention, LengthsThatDoNotAddUpAreRefused) {
  Rows all = random_rows(10);
  EXPECT_THROW(
      ragged_attention(all.q, all.k, all.v, {{4, 5}, 1.0f}, chosen(false)),
      Error);
}

}  // namespace
}  // namespace mlxx::kernels
