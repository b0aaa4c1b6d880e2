#include "mlxx/eval/interval.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace mlxx::eval {
namespace {

constexpr double kNormal = 1.959963984540054;

Interval around(double mean, double error, int64_t groups) {
  if (groups < 2) {
    return {.mean = mean, .standard_error = 0, .low = mean, .high = mean};
  }
  double reach = student_quantile(groups - 1) * error;
  return {
      .mean = mean,
      .standard_error = error,
      .low = mean - reach,
      .high = mean + reach};
}

}  // namespace

double student_quantile(int64_t degrees_of_freedom) {
  constexpr double kExact[] =
      {12.706204736, 4.302652730, 3.182446305, 2.776445105, 2.570581836};
  if (degrees_of_freedom < 1) {
    return 0;
  }
  if (degrees_of_freedom <= 5) {
    return kExact[degrees_of_freedom - 1];
  }
  // Cornish-Fisher expansion around the normal distribution (Abramowitz and
  // Stegun 26.7.5).
  double n = static_cast<double>(degrees_of_freedom);
  double x = kNormal;
  double x3 = x * x * x;
  double x5 = x3 * x * x;
  double x7 = x5 * x * x;
  double x9 = x7 * x * x;
  return x + (x3 + x) / (4 * n) + (5 * x5 + 16 * x3 + 3 * x) / (96 * n * n) +
      (3 * x7 + 19 * x5 + 17 * x3 - 15 * x) / (384 * n * n * n) +
      (79 * x9 + 776 * x7 + 1482 * x5 - 1920 * x3 - 945 * x) /
      (92160 * n * n * n * n);
}

Interval grouped_mean(
    std::span<const double> sums,
    std::span<const int64_t> counts) {
  double sum = 0;
  double count = 0;
  int64_t groups = 0;
  for (size_t i = 0; i < sums.size(); ++i) {
    sum += sums[i];
    count += static_cast<double>(counts[i]);
    groups += counts[i] > 0 ? 1 : 0;
  }
  if (count == 0) {
    return {};
  }
  double mean = sum / count;
  double squares = 0;
  for (size_t i = 0; i < sums.size(); ++i) {
    double off = sums[i] - mean * static_cast<double>(counts[i]);
    squares += off * off;
  }
  double n = static_cast<double>(groups);
  double error = groups < 2 ? 0 : std::sqrt(n / (n - 1) * squares) / count;
  return around(mean, error, groups);
}

Interval plain_mean(std::span<const double> values) {
  std::vector<int64_t> ones(values.size(), 1);
  return grouped_mean(values, ones);
}

Interval share(int64_t ones, int64_t count) {
  if (count == 0) {
    return {};
  }
  double n = static_cast<double>(count);
  double p = static_cast<double>(ones) / n;
  double square = kNormal * kNormal;
  double middle = (p + square / (2 * n)) / (1 + square / n);
  double reach = kNormal / (1 + square / n) *
      std::sqrt(p * (1 - p) / n + square / (4 * n * n));
  return {
      .mean = p,
      .standard_error = count < 2 ? 0 : std::sqrt(p * (1 - p) / (n - 1)),
      .low = std::max(0.0, middle - reach),
      .high = std::min(1.0, middle + reach)};
}

}  // namespace mlxx::eval
