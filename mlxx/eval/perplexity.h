#pragma once

#include <cstdint>
#include <span>

#include "mlxx/eval/interval.h"
#include "mlxx/eval/scored_rows.h"

namespace mlxx::eval {

struct PerplexityReport {
  int64_t tokens = 0;   // that were predicted
  int64_t windows = 0;  // the rows they are in, which the interval is over
  Interval loss;        // mean of -log p, over tokens; nats
  // exp() of the above; the standard error to first order.
  Interval perplexity;
};

// Of all targets of the rows, each token with the same weight. invalid_request
// if there is none.
PerplexityReport perplexity(
    const Subject& subject,
    std::span<const ScoredRow> rows,
    const ScoreOptions& options);

struct DivergenceReport {
  int64_t tokens = 0;
  int64_t windows = 0;
  Interval mean;  // of KL(reference || other) over tokens; nats
  double median = 0;
  double p90 = 0;
  double p99 = 0;
  double largest = 0;
  Interval same_top;     // share of tokens whose most likely one is the same
  Interval loss_change;  // mean of -log p of the token, other - reference
  Interval reference_loss;
  Interval other_loss;
};

// How far the distributions of `other` are from those of `reference` at every
// target. invalid_request for vocabularies of different sizes.
DivergenceReport divergence(
    const Subject& reference,
    const Subject& other,
    std::span<const ScoredRow> rows,
    const ScoreOptions& options);

// Of sorted numbers, linear between neighbours; 0 for none.
double quantile(std::span<const float> sorted, double q);

}  // namespace mlxx::eval
