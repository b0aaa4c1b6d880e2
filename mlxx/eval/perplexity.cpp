#include "mlxx/eval/perplexity.h"

#include <algorithm>
#include <cmath>

#include "mlxx/base/error.h"

namespace mlxx::eval {
namespace {

using RowValues = std::vector<std::vector<float>>;

Interval mean_over_tokens(const RowValues& rows) {
  std::vector<double> sums;
  std::vector<int64_t> counts;
  for (const auto& row : rows) {
    double sum = 0;
    for (float value : row) {
      sum += static_cast<double>(value);
    }
    sums.push_back(sum);
    counts.push_back(static_cast<int64_t>(row.size()));
  }
  return grouped_mean(sums, counts);
}

int64_t count_tokens(const RowValues& rows) {
  int64_t count = 0;
  for (const auto& row : rows) {
    count += static_cast<int64_t>(row.size());
  }
  return count;
}

int64_t count_windows(const RowValues& rows) {
  return std::ranges::count_if(rows, [](const auto& row) {
    return !row.empty();
  });
}

Interval exponential(const Interval& of) {
  double mean = std::exp(of.mean);
  return {
      .mean = mean,
      .standard_error = mean * of.standard_error,
      .low = std::exp(of.low),
      .high = std::exp(of.high)};
}

// Logits [B, n, V] of two models -> KL, 1 where the best token is the same,
// and what each makes of the token that came.
std::vector<mx::array> compare(
    std::span<const mx::array> logits,
    const mx::array& next) {
  const mx::array& a = logits[0];
  const mx::array& b = logits[1];
  mx::array log_a = mx::subtract(a, mx::logsumexp(a, -1, true));
  mx::array log_b = mx::subtract(b, mx::logsumexp(b, -1, true));
  mx::array kl =
      mx::sum(mx::multiply(mx::exp(log_a), mx::subtract(log_a, log_b)), -1);
  mx::array same = mx::equal(mx::argmax(a, -1), mx::argmax(b, -1));
  return {
      kl,
      mx::astype(same, mx::float32),
      surprise(a, next),
      surprise(b, next)};
}

}  // namespace

double quantile(std::span<const float> sorted, double q) {
  if (sorted.empty()) {
    return 0;
  }
  double at = q * static_cast<double>(sorted.size() - 1);
  auto below = static_cast<size_t>(at);
  size_t above = std::min(below + 1, sorted.size() - 1);
  double part = at - static_cast<double>(below);
  return static_cast<double>(sorted[below]) * (1 - part) +
      static_cast<double>(sorted[above]) * part;
}

PerplexityReport perplexity(
    const Subject& subject,
    std::span<const ScoredRow> rows,
    const ScoreOptions& options) {
  RowValues values = target_logprobs(subject, rows, options);
  for (auto& row : values) {
    std::ranges::transform(row, row.begin(), std::negate<>());
  }
  PerplexityReport report;
  report.tokens = count_tokens(values);
  if (report.tokens == 0) {
    fail(ErrorKind::invalid_request, "perplexity", "no token to predict");
  }
  report.windows = count_windows(values);
  report.loss = mean_over_tokens(values);
  report.perplexity = exponential(report.loss);
  return report;
}

DivergenceReport divergence(
    const Subject& reference,
    const Subject& other,
    std::span<const ScoredRow> rows,
    const ScoreOptions& options) {
  int first = reference.model.summary().vocab_size;
  int second = other.model.summary().vocab_size;
  if (first != second) {
    fail(
        ErrorKind::invalid_request,
        "kl",
        "vocabularies of {} and {} tokens cannot be compared",
        first,
        second);
  }
  const Subject both[] = {reference, other};
  MeasuredRows values = measure_rows(both, rows, compare, options);
  if (values.empty()) {
    fail(ErrorKind::invalid_request, "kl", "no token to predict");
  }
  DivergenceReport report;
  report.tokens = count_tokens(values[0]);
  report.windows = count_windows(values[0]);
  report.mean = mean_over_tokens(values[0]);
  report.same_top = mean_over_tokens(values[1]);
  report.reference_loss = mean_over_tokens(values[2]);
  report.other_loss = mean_over_tokens(values[3]);
  RowValues change = values[3];
  std::vector<float> all;
  for (size_t row = 0; row < change.size(); ++row) {
    for (size_t i = 0; i < change[row].size(); ++i) {
      change[row][i] -= values[2][row][i];
    }
    all.insert(all.end(), values[0][row].begin(), values[0][row].end());
  }
  report.loss_change = mean_over_tokens(change);
  std::ranges::sort(all);
  report.median = quantile(all, 0.5);
  report.p90 = quantile(all, 0.9);
  report.p99 = quantile(all, 0.99);
  report.largest = static_cast<double>(all.back());
  return report;
}

}  // namespace mlxx::eval
