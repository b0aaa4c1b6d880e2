#include "mlxx/eval/scored_rows.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "mlxx/base/error.h"

namespace mlxx::eval {
namespace {

// Tokens at a time where no logits are needed.
constexpr int kContextPiece = 2048;

// Rows side by side, padded on the right.
struct RowBatch {
  std::vector<size_t> rows;  // their indices
  int length = 0;
  std::vector<int32_t> tokens = {};  // [rows, length]
  int first_target = 0;              // in any of them
};

RowBatch make_batch(
    std::span<const ScoredRow> rows,
    std::span<const size_t> chosen) {
  RowBatch batch{.rows = {chosen.begin(), chosen.end()}};
  size_t length = 0;
  size_t first = SIZE_MAX;
  for (size_t row : chosen) {
    length = std::max(length, rows[row].tokens.size());
    auto target = std::ranges::find(rows[row].targets, 1);
    first = std::min(
        first,
        static_cast<size_t>(target - rows[row].targets.begin()));
  }
  for (size_t row : chosen) {
    const auto& tokens = rows[row].tokens;
    batch.tokens.insert(batch.tokens.end(), tokens.begin(), tokens.end());
    batch.tokens.insert(batch.tokens.end(), length - tokens.size(), 0);
  }
  batch.length = static_cast<int>(length);
  batch.first_target = static_cast<int>(first);
  return batch;
}

// One subject in the middle of a batch.
class Run {
 public:
  Run(const Subject& subject, int rows)
      : model_(subject.model),
        cache_(model_.make_cache({.per_layer = subject.per_layer})) {
    if (subject.adapters) {
      adapters_ = subject.adapters(rows);
    }
  }

  // Computes tokens [B, n] of which no logits are asked for.
  void pass(const mx::array& tokens) {
    nn::AdapterScope scope(adapters_.get());
    std::vector<mx::array> pending{model_.forward_last(tokens, cache_)};
    add_state(pending);
    mx::eval(std::move(pending));
  }

  // [B, n, V] float32; lazy.
  mx::array logits(const mx::array& tokens) {
    nn::AdapterScope scope(adapters_.get());
    return mx::astype(model_.forward(tokens, cache_), mx::float32);
  }

  void add_state(std::vector<mx::array>& pending) const {
    for (const auto& layer : cache_) {
      auto state = layer->state();
      pending.insert(pending.end(), state.begin(), state.end());
    }
  }

 private:
  const models::Model& model_;
  cache::CacheList cache_;
  std::unique_ptr<nn::RowAdapters> adapters_;
};

int positions_at_a_time(
    std::span<const Subject> subjects,
    size_t rows,
    size_t piece_bytes) {
  size_t bytes = 0;
  for (const Subject& subject : subjects) {
    auto vocabulary = static_cast<size_t>(subject.model.summary().vocab_size);
    bytes += rows * vocabulary * sizeof(float);
  }
  return static_cast<int>(
      std::clamp<size_t>(piece_bytes / std::max<size_t>(bytes, 1), 1, 4096));
}

void check_rows(
    std::span<const Subject> subjects,
    std::span<const ScoredRow> rows) {
  int vocabulary = subjects.front().model.summary().vocab_size;
  for (const Subject& subject : subjects) {
    vocabulary = std::min(vocabulary, subject.model.summary().vocab_size);
  }
  for (const ScoredRow& row : rows) {
    if (row.tokens.size() != row.targets.size() ||
        (!row.targets.empty() && row.targets[0] != 0)) {
      fail(
          ErrorKind::invalid_request,
          "row",
          "must have a target for each token but the first");
    }
    for (int32_t token : row.tokens) {
      if (token < 0 || token >= vocabulary) {
        fail(
            ErrorKind::invalid_request,
            "row",
            "token {} is outside the vocabulary of {}",
            token,
            vocabulary);
      }
    }
  }
}

class BatchMeasure {
 public:
  BatchMeasure(
      std::span<const Subject> subjects,
      std::span<const ScoredRow> rows,
      const Measure& measure,
      size_t piece_bytes,
      MeasuredRows& values)
      : subjects_(subjects),
        rows_(rows),
        measure_(measure),
        piece_bytes_(piece_bytes),
        values_(values) {}

  void run(const RowBatch& batch) {
    auto count = static_cast<int>(batch.rows.size());
    mx::array ids(batch.tokens.data(), {count, batch.length}, mx::int32);
    std::vector<Run> runs;
    for (const Subject& subject : subjects_) {
      runs.emplace_back(subject, count);
    }
    // The token at `at` is predicted from logits at `at` - 1.
    int at = 0;
    while (at < batch.first_target - 1) {
      int end = std::min(at + kContextPiece, batch.first_target - 1);
      for (Run& run : runs) {
        run.pass(mx::slice(ids, {0, at}, {count, end}));
      }
      at = end;
    }
    int most = positions_at_a_time(subjects_, batch.rows.size(), piece_bytes_);
    while (at + 1 < batch.length) {
      int end = std::min(at + most, batch.length - 1);
      piece(batch, ids, runs, at, end);
      at = end;
    }
  }

 private:
  void piece(
      const RowBatch& batch,
      const mx::array& ids,
      std::vector<Run>& runs,
      int begin,
      int end) {
    auto count = static_cast<int>(batch.rows.size());
    std::vector<mx::array> logits;
    std::vector<mx::array> pending;
    for (Run& run : runs) {
      logits.push_back(run.logits(mx::slice(ids, {0, begin}, {count, end})));
      run.add_state(pending);
    }
    auto measured =
        measure_(logits, mx::slice(ids, {0, begin + 1}, {count, end + 1}));
    for (mx::array& numbers : measured) {
      numbers = mx::contiguous(numbers);
    }
    pending.insert(pending.end(), measured.begin(), measured.end());
    mx::eval(std::move(pending));
    values_.resize(
        measured.size(),
        std::vector<std::vector<float>>(rows_.size()));
    auto width = static_cast<size_t>(end - begin);
    for (size_t i = 0; i < measured.size(); ++i) {
      const float* numbers = measured[i].data<float>();
      for (size_t row = 0; row < batch.rows.size(); ++row) {
        add(i, batch.rows[row], begin + 1, {numbers + row * width, width});
      }
    }
  }

  void add(size_t i, size_t row, int first, std::span<const float> numbers) {
    const auto& targets = rows_[row].targets;
    for (size_t k = 0; k < numbers.size(); ++k) {
      size_t position = static_cast<size_t>(first) + k;
      if (position < targets.size() && targets[position] != 0) {
        values_[i][row].push_back(numbers[k]);
      }
    }
  }

  std::span<const Subject> subjects_;
  std::span<const ScoredRow> rows_;
  const Measure& measure_;
  size_t piece_bytes_;
  MeasuredRows& values_;
};

}  // namespace

mx::array surprise(const mx::array& logits, const mx::array& next) {
  mx::array score = mx::squeeze(
      mx::take_along_axis(logits, mx::expand_dims(next, -1), -1),
      -1);
  return mx::subtract(mx::logsumexp(logits, -1), score);
}

MeasuredRows measure_rows(
    std::span<const Subject> subjects,
    std::span<const ScoredRow> rows,
    const Measure& measure,
    const ScoreOptions& options) {
  check_rows(subjects, rows);
  std::vector<size_t> order;
  for (size_t row = 0; row < rows.size(); ++row) {
    if (std::ranges::find(rows[row].targets, 1) != rows[row].targets.end()) {
      order.push_back(row);
    }
  }
  // The longest first: what does not fit into memory shows at once.
  std::ranges::stable_sort(order, [&](size_t a, size_t b) {
    return rows[a].tokens.size() > rows[b].tokens.size();
  });
  MeasuredRows values;
  BatchMeasure batches(subjects, rows, measure, options.piece_bytes, values);
  auto batch_size = static_cast<size_t>(std::max(options.batch_size, 1));
  for (size_t at = 0; at < order.size(); at += batch_size) {
    size_t count = std::min(batch_size, order.size() - at);
    batches.run(make_batch(rows, std::span(order).subspan(at, count)));
    if (options.progress) {
      options.progress(
          static_cast<int64_t>(at + count),
          static_cast<int64_t>(order.size()));
    }
  }
  return values;
}

std::vector<std::vector<float>> target_logprobs(
    const Subject& subject,
    std::span<const ScoredRow> rows,
    const ScoreOptions& options) {
  auto values = measure_rows(
      std::span(&subject, 1),
      rows,
      [](std::span<const mx::array> logits, const mx::array& next) {
        return std::vector<mx::array>{
            mx::negative(surprise(logits.front(), next))};
      },
      options);
  return values.empty() ? std::vector<std::vector<float>>(rows.size())
                        : std::move(values.front());
}

}  // namespace mlxx::eval
