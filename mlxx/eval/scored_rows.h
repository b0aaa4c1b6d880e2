#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "mlxx/core/mlx.h"
#include "mlxx/models/model.h"
#include "mlxx/nn/row_adapters.h"

namespace mlxx::eval {

// A model, with or without adapters, that is to be judged.
struct Subject {
  const models::Model& model;
  // What all of so many rows are computed with; empty: nothing.
  std::function<std::unique_ptr<nn::RowAdapters>(int rows)> adapters = {};
  // Caches of CacheOptions::per_layer: for adapters that need them.
  bool per_layer = false;
};

// Tokens, and which of them are to be predicted from those before them: never
// the first one.
struct ScoredRow {
  std::vector<int32_t> tokens;
  std::vector<uint8_t> targets;  // of the same length
};

struct ScoreOptions {
  int batch_size = 8;  // rows computed together
  // Logits are there for so many bytes of positions at a time.
  size_t piece_bytes = size_t{64} << 20;
  // After each batch; may throw to stop.
  std::function<void(int64_t done_rows, int64_t rows)> progress = {};
};

// What is measured at every position: from each subject's logits [B, n, V],
// float32, and the tokens that came, int32 [B, n], arrays of float32 [B, n].
using Measure = std::function<std::vector<mx::array>(
    std::span<const mx::array> logits,
    const mx::array& next)>;

// values[i][k][t]: the i-th of the measured numbers for the t-th target of row
// k. Rows are computed together in the order of their lengths, padded on the
// right, which a causal model cannot see: on our CPU kernels a row's numbers
// have the same bits alone and in every company. invalid_request for a token
// that a vocabulary has not.
using MeasuredRows = std::vector<std::vector<std::vector<float>>>;
MeasuredRows measure_rows(
    std::span<const Subject> subjects,
    std::span<const ScoredRow> rows,
    const Measure& measure,
    const ScoreOptions& options);

// Natural logarithms of the probabilities of every row's targets.
std::vector<std::vector<float>> target_logprobs(
    const Subject& subject,
    std::span<const ScoredRow> rows,
    const ScoreOptions& options);

// -log p(next) of logits [..., V] as the reference computes it.
mx::array surprise(const mx::array& logits, const mx::array& next);

}  // namespace mlxx::eval
