#include "mlxx/nn/router.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include <gtest/gtest.h>

#include "tests/kernels/relative_error.h"

namespace mlxx::nn {
namespace {

constexpr int kTokens = 9;
constexpr int kExperts = 16;

// A router calculated in double on the host: expert -> weight.
using Expected = std::map<uint32_t, double>;

std::vector<double> row_of(const mx::array& a, int row) {
  mx::array line = mx::contiguous(mx::flatten(
      mx::astype(mx::slice(a, {row, 0}, {row + 1, a.shape(1)}), mx::float32)));
  mx::eval(line);
  return {line.data<float>(), line.data<float>() + line.size()};
}

std::vector<uint32_t> largest(const std::vector<double>& scores, int k) {
  std::vector<uint32_t> order(scores.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::sort(order, [&](auto a, auto b) {
    return scores[a] > scores[b];
  });
  order.resize(k);
  return order;
}

std::vector<double> softmax(std::vector<double> scores) {
  double most = *std::ranges::max_element(scores);
  double sum = 0;
  for (double& s : scores) {
    s = std::exp(s - most);
    sum += s;
  }
  for (double& s : scores) {
    s /= sum;
  }
  return scores;
}

std::vector<double> sigmoid(std::vector<double> scores) {
  for (double& s : scores) {
    s = 1 / (1 + std::exp(-s));
  }
  return scores;
}

void divide_by_sum(Expected& weights, double epsilon = 0) {
  double sum = epsilon;
  for (const auto& [expert, weight] : weights) {
    sum += weight;
  }
  for (auto& [expert, weight] : weights) {
    weight /= sum;
  }
}

Expected pick(
    const std::vector<double>& weights,
    const std::vector<uint32_t>& experts) {
  Expected picked;
  for (uint32_t e : experts) {
    picked[e] = weights[e];
  }
  return picked;
}

void expect_routing(
    const Routing& routing,
    const mx::array& logits,
    int k,
    const std::function<Expected(const std::vector<double>&)>& wanted,
    double bound = 1e-6) {
  ASSERT_EQ(routing.experts.shape(), (mx::Shape{kTokens, k}));
  ASSERT_EQ(routing.weights.shape(), (mx::Shape{kTokens, k}));
  EXPECT_EQ(routing.experts.dtype(), mx::uint32);
  for (int token = 0; token < kTokens; ++token) {
    auto experts = row_of(routing.experts, token);
    auto weights = row_of(routing.weights, token);
    Expected expected = wanted(row_of(logits, token));
    Expected actual;
    for (int i = 0; i < k; ++i) {
      actual[static_cast<uint32_t>(experts[i])] = weights[i];
    }
    ASSERT_EQ(actual.size(), expected.size());
    for (const auto& [expert, weight] : expected) {
      ASSERT_TRUE(actual.contains(expert)) << "token " << token;
      EXPECT_NEAR(actual[expert], weight, bound) << "token " << token;
    }
  }
}

mx::array logits() {
  return normal({kTokens, kExperts}, 5);
}

mx::array correction() {
  return mx::multiply(normal({kExperts}, 6), mx::array(0.3f));
}

TEST(TopExperts, BothSidesAreMlxsPartition) {
  mx::array scores = logits();
  EXPECT_TRUE(same_bits(
      top_experts(scores, 3, TopK::last),
      mx::slice(
          mx::argpartition(scores, -3, -1),
          {0, kExperts - 3},
          {kTokens, kExperts})));
  EXPECT_TRUE(same_bits(
      top_experts(scores, 3, TopK::first_of_negated),
      mx::slice(
          mx::argpartition(mx::negative(scores), 2, -1),
          {0, 0},
          {kTokens, 3})));
  for (TopK side : {TopK::last, TopK::first_of_negated}) {
    EXPECT_EQ(
        top_experts(scores, kExperts, side).shape(),
        (mx::Shape{kTokens, kExperts}));
  }
}

TEST(Router, SoftmaxOverAllThenTheLargest) {
  for (TopK side : {TopK::last, TopK::first_of_negated}) {
    for (bool renormalize : {false, true}) {
      for (int k : {1, 4}) {
        expect_routing(
            softmax_then_top_k(logits(), k, side, renormalize),
            logits(),
            k,
            [&](const std::vector<double>& row) {
              auto weights = softmax(row);
              Expected expected = pick(weights, largest(weights, k));
              if (renormalize) {
                divide_by_sum(expected);
              }
              return expected;
            });
      }
    }
  }
}

TEST(Router, TheLargestThenSoftmaxOverThese) {
  for (auto kind :
       {ChosenSoftmax::precise, ChosenSoftmax::plain, ChosenSoftmax::float32}) {
    expect_routing(
        top_k_then_softmax(logits(), 3, TopK::last, kind),
        logits(),
        3,
        [&](const std::vector<double>& row) {
          auto experts = largest(row, 3);
          auto weights =
              softmax({row[experts[0]], row[experts[1]], row[experts[2]]});
          return Expected{
              {experts[0], weights[0]},
              {experts[1], weights[1]},
              {experts[2], weights[2]}};
        });
  }
}

TEST(Router, WeightsHaveTheDtypeOfTheReference) {
  mx::array half = mx::astype(logits(), mx::bfloat16);
  auto dtype_of = [&](ChosenSoftmax kind) {
    return top_k_then_softmax(half, 2, TopK::last, kind).weights.dtype();
  };
  EXPECT_EQ(dtype_of(ChosenSoftmax::precise), mx::bfloat16);
  EXPECT_EQ(dtype_of(ChosenSoftmax::plain), mx::bfloat16);
  EXPECT_EQ(dtype_of(ChosenSoftmax::float32), mx::float32);
  EXPECT_EQ(
      softmax_then_top_k(half, 2, TopK::last, true).weights.dtype(),
      mx::bfloat16);
  EXPECT_EQ(
      grouped_sigmoid(half, mx::astype(correction(), mx::bfloat16), {})
          .weights.dtype(),
      mx::float32);
  EXPECT_EQ(
      biased_sigmoid(half, correction(), mx::bfloat16, {.top_k = 2})
          .weights.dtype(),
      mx::bfloat16);
}

// The groups whose two best experts add up to most.
std::vector<double>
without_bad_groups(std::vector<double> scores, int groups, int kept) {
  int size = kExperts / groups;
  std::vector<double> sums;
  for (int g = 0; g < groups; ++g) {
    std::vector<double> group(
        scores.begin() + g * size,
        scores.begin() + (g + 1) * size);
    std::ranges::sort(group, std::greater<>());
    sums.push_back(group[0] + group[1]);
  }
  auto good = largest(sums, kept);
  for (int g = 0; g < groups; ++g) {
    if (std::ranges::find(good, g) == good.end()) {
      std::fill_n(scores.begin() + g * size, size, 0.0);
    }
  }
  return scores;
}

TEST(Router, GroupedSigmoidChoosesWithTheBiasAndWeighsWithout) {
  auto bias = row_of(mx::expand_dims(correction(), 0), 0);
  for (const GroupedSigmoidOptions& options :
       {GroupedSigmoidOptions{.top_k = 4, .groups = 4, .groups_kept = 2},
        GroupedSigmoidOptions{
            .top_k = 3,
            .groups = 8,
            .groups_kept = 3,
            .scale = 2.5f},
        GroupedSigmoidOptions{.top_k = 4, .scale = 1.5f, .renormalize = false},
        GroupedSigmoidOptions{.top_k = 1, .scale = 2.5f}}) {
    expect_routing(
        grouped_sigmoid(logits(), correction(), options),
        logits(),
        options.top_k,
        [&](const std::vector<double>& row) {
          auto weights = sigmoid(row);
          auto ranked = weights;
          for (size_t e = 0; e < ranked.size(); ++e) {
            ranked[e] += bias[e];
          }
          if (options.groups > 1) {
            ranked =
                without_bad_groups(ranked, options.groups, options.groups_kept);
          }
          Expected expected = pick(weights, largest(ranked, options.top_k));
          // One expert alone keeps its score.
          if (options.renormalize && options.top_k > 1) {
            divide_by_sum(expected);
          }
          for (auto& [expert, weight] : expected) {
            weight *= options.scale;
          }
          return expected;
        });
  }
}

TEST(Router, BiasedSigmoid) {
  auto bias = row_of(mx::expand_dims(correction(), 0), 0);
  for (bool biased : {false, true}) {
    for (std::optional<float> epsilon :
         {std::optional<float>(), std::optional(0.25f)}) {
      BiasedSigmoidOptions options{
          .top_k = 3,
          .side = TopK::first_of_negated,
          .renormalize_epsilon = epsilon,
          .scale = 1.75f};
      expect_routing(
          biased_sigmoid(
              logits(),
              biased ? std::optional(correction()) : std::nullopt,
              mx::float32,
              options),
          logits(),
          3,
          [&](const std::vector<double>& row) {
            auto weights = sigmoid(row);
            auto ranked = weights;
            for (size_t e = 0; biased && e < ranked.size(); ++e) {
              ranked[e] += bias[e];
            }
            Expected expected = pick(weights, largest(ranked, 3));
            if (epsilon) {
              divide_by_sum(expected, *epsilon);
            }
            for (auto& [expert, weight] : expected) {
              weight *= 1.75;
            }
            return expected;
          });
    }
  }
}

TEST(Router, GradientFlowsIntoTheWeights) {
  auto gradient = mx::grad([](const mx::array& x) {
    Routing routing = softmax_then_top_k(x, 2, TopK::last, true);
    return mx::sum(mx::multiply(routing.weights, mx::array({1.0f, 2.0f})));
  })(logits());
  EXPECT_TRUE(mx::all(mx::isfinite(gradient)).item<bool>());
  EXPECT_GT(mx::max(mx::abs(gradient)).item<float>(), 1e-3f);
}

}  // namespace
}  // namespace mlxx::nn
