#pragma once

#include <cstdint>
#include <span>

namespace mlxx::eval {

// A mean with what it may be off by.
struct Interval {
  double mean = 0;
  double standard_error = 0;  // 0 if it cannot be told (one group)
  double low = 0;             // of the 95 % confidence interval
  double high = 0;
};

// The mean of single numbers that come in groups (the tokens of a text), which
// are not independent of each other: sum(sums) / sum(counts), with the
// standard error of a ratio over groups and Student's distribution.
Interval grouped_mean(
    std::span<const double> sums,
    std::span<const int64_t> counts);

// Of single, independent numbers; the standard error is lm-eval's.
Interval plain_mean(std::span<const double> values);

// Of numbers that are 0 or 1: Wilson's interval, which stays within them.
Interval share(int64_t ones, int64_t count);

// The two-sided 95 % quantile of Student's distribution.
double student_quantile(int64_t degrees_of_freedom);

}  // namespace mlxx::eval
