#include "mlxx/eval/interval.h"

#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "mlxx/eval/perplexity.h"

namespace mlxx::eval {
namespace {

TEST(StudentQuantile, IsThatOfTheTables) {
  EXPECT_NEAR(student_quantile(1), 12.7062, 1e-4);
  EXPECT_NEAR(student_quantile(5), 2.5706, 1e-4);
  EXPECT_NEAR(student_quantile(6), 2.4469, 1e-3);
  EXPECT_NEAR(student_quantile(10), 2.2281, 1e-4);
  EXPECT_NEAR(student_quantile(30), 2.0423, 1e-4);
  EXPECT_NEAR(student_quantile(1'000'000), 1.9600, 1e-4);
}

TEST(GroupedMean, WeighsNumbersAndNotGroups) {
  std::vector<double> sums{10, 1};
  std::vector<int64_t> counts{10, 1};
  Interval mean = grouped_mean(sums, counts);
  EXPECT_DOUBLE_EQ(mean.mean, 1);
  EXPECT_DOUBLE_EQ(mean.standard_error, 0);
  sums = {10, 3};
  mean = grouped_mean(sums, counts);
  EXPECT_DOUBLE_EQ(mean.mean, 13.0 / 11);
  // Off by 10 - 130/11 and 3 - 13/11: the same, with opposite signs.
  double off = 20.0 / 11;
  EXPECT_NEAR(
      mean.standard_error,
      std::sqrt(2.0 / 1.0 * 2 * off * off) / 11,
      1e-12);
  EXPECT_NEAR(mean.high - mean.mean, 12.706204736 * mean.standard_error, 1e-9);
}

TEST(GroupedMean, OfOneGroupSaysNothingOfItsError) {
  std::vector<double> sums{10, 0};
  std::vector<int64_t> counts{5, 0};
  Interval mean = grouped_mean(sums, counts);
  EXPECT_EQ(mean.mean, 2);
  EXPECT_EQ(mean.standard_error, 0);
  EXPECT_EQ(mean.low, 2);
  EXPECT_EQ(grouped_mean({}, {}).mean, 0);
}

TEST(PlainMean, HasTheStandardErrorOfTheSample) {
  std::vector<double> values{1, 2, 3, 6};
  Interval mean = plain_mean(values);
  EXPECT_DOUBLE_EQ(mean.mean, 3);
  // Variance 14 / 3 of the sample, over 4.
  EXPECT_NEAR(mean.standard_error, std::sqrt(14.0 / 3 / 4), 1e-12);
}

TEST(Share, StaysBetweenNothingAndAll) {
  Interval all = share(10, 10);
  EXPECT_EQ(all.mean, 1);
  EXPECT_NEAR(all.high, 1, 1e-12);
  EXPECT_NEAR(all.low, 0.7225, 1e-4);
  Interval half = share(5, 10);
  EXPECT_NEAR(half.low, 0.2366, 1e-4);
  EXPECT_NEAR(half.high, 0.7634, 1e-4);
  // As lm-eval: the deviation of the sample over the root of its size.
  EXPECT_NEAR(half.standard_error, std::sqrt(0.25 * 10 / 9 / 10), 1e-12);
}

TEST(Quantile, LiesBetweenNeighbours) {
  std::vector<float> numbers{0, 1, 2, 10};
  EXPECT_EQ(quantile(numbers, 0.5), 1.5);
  EXPECT_EQ(quantile(numbers, 1), 10);
  EXPECT_EQ(quantile(numbers, 0), 0);
  EXPECT_NEAR(quantile(numbers, 0.99), 9.76, 1e-12);
  EXPECT_EQ(quantile({}, 0.5), 0);
}

}  // namespace
}  // namespace mlxx::eval
