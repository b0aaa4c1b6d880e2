#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "mlxx/core/autograd.h"
#include "mlxx/data/training_data.h"
#include "mlxx/train/differentiate.h"
#include "mlxx/train/trainable.h"

namespace mlxx::train {

// A model of two matrices, which predicts a token from the one before it.
class ToyModel : public Trainable {
 public:
  static constexpr int kVocabulary = 13;
  static constexpr int kSize = 6;

  explicit ToyModel(mx::Dtype dtype = mx::float32) {
    for (uint64_t key : {1, 2}) {
      const mx::Shape shape = key == 1 ? mx::Shape{kVocabulary, kSize}
                                       : mx::Shape{kSize, kVocabulary};
      values_.push_back(mx::astype(
          mx::random::normal(shape, mx::float32, mx::random::key(key)),
          dtype));
    }
    mx::eval(values_);
    initial_ = values_;
  }

  const std::vector<std::string>& names() const override {
    return names_;
  }
  int layer(size_t) const override {
    return 0;
  }
  const std::vector<mx::array>& values() const override {
    return values_;
  }
  void set_values(std::vector<mx::array> values) override {
    values_ = std::move(values);
  }
  void with(
      std::span<const size_t> indices,
      std::span<const mx::array> values,
      const std::function<void()>& body) override {
    auto kept = values_;
    for (size_t i = 0; i < indices.size(); ++i) {
      values_[indices[i]] = values[i];
    }
    body();
    values_ = kept;
  }
  void without(const std::function<void()>& body) override {
    auto kept = values_;
    values_ = initial_;
    body();
    values_ = kept;
  }
  // Dropout of one input feature in each step.
  void begin_step(uint64_t seed, int64_t step) override {
    dropped_ = static_cast<int>((seed + 31 * static_cast<uint64_t>(step)) % 7);
  }
  void set_training(bool training) override {
    training_ = training;
  }
  float learning_rate_ratio(size_t index) const override {
    return index == 1 ? ratio : 1;
  }

  // Log-probabilities [rows, length, vocabulary] of what follows each token.
  mx::array log_probabilities(const mx::array& tokens) const {
    mx::array x = mx::astype(mx::take(values_[0], tokens, 0), mx::float32);
    if (training_ && dropout) {
      std::vector<float> kept(kSize, 1);
      if (dropped_ < kSize) {
        kept[dropped_] = 0;
      }
      x = mx::multiply(x, mx::array(kept.begin(), {kSize}, mx::float32));
    }
    const mx::array logits = mx::matmul(x, mx::astype(values_[1], mx::float32));
    return mx::subtract(logits, mx::logsumexp(logits, -1, true));
  }

  float ratio = 1;
  bool dropout = false;

 private:
  std::vector<std::string> names_ = {"head", "table"};
  std::vector<mx::array> values_;
  std::vector<mx::array> initial_;
  bool training_ = true;
  int dropped_ = kSize;
};

class ToyDifferentiator : public Differentiator {
 public:
  explicit ToyDifferentiator(ToyModel& model) : model_(model) {}

  Result apply(const data::Batch& batch, const ScoreLoss& loss) const override {
    std::optional<LossSums> sums;
    const std::vector<size_t> all = {0, 1};
    const ValueAndGrad gradient(
        [&](const std::vector<mx::array>& values) {
          std::vector<mx::array> result;
          model_.with(all, values, [&] {
            sums = loss(scores_now(batch));
            result = {sums->loss};
          });
          return result;
        },
        {0, 1});
    auto result = gradient.apply(model_.values());
    sums->loss = result.loss;
    ++calls;
    tokens.push_back(batch.rows * batch.length);
    return {*sums, result.gradients};
  }

  mx::array scores(const data::Batch& batch, bool reference) const override {
    std::optional<mx::array> result;
    if (reference) {
      model_.without([&] {
        result = scores_now(batch);
        mx::eval(*result);
      });
    } else {
      result = scores_now(batch);
    }
    return *result;
  }

  std::string description() const override {
    return "none";
  }

  mutable int calls = 0;
  mutable std::vector<int> tokens;  // of each call

 private:
  mx::array scores_now(const data::Batch& batch) const {
    const mx::Shape shape = {batch.rows, batch.length};
    const mx::array tokens(batch.tokens.begin(), shape, mx::int32);
    const mx::array targets(batch.targets.begin(), shape, mx::uint8);
    const mx::array inputs =
        mx::slice(mx::pad(tokens, {{0, 0}, {1, 0}}), {0, 0}, shape);
    const mx::array all = mx::squeeze(
        mx::take_along_axis(
            model_.log_probabilities(inputs),
            mx::expand_dims(tokens, -1),
            -1),
        -1);
    return mx::where(
        mx::not_equal(targets, mx::array(uint8_t{0})),
        all,
        mx::array(0.0f));
  }

  ToyModel& model_;
};

// Samples of random tokens and lengths; of pairs two rows each.
class ToyData : public data::TrainingData {
 public:
  struct Options {
    int samples = 20;
    int batch_size = 3;
    int longest = 12;
    bool pairs = false;
    int without_targets = -1;  // a sample
  };

  explicit ToyData(const Options& options) : options_(options) {}

  int64_t samples() const override {
    return options_.samples;
  }
  int64_t batches_per_epoch() const override {
    return (options_.samples + options_.batch_size - 1) / options_.batch_size;
  }
  data::Batch batch(int64_t index) const override {
    const int64_t within = index % batches_per_epoch();
    std::vector<int64_t> chosen;
    for (int64_t i = within * options_.batch_size; i <
         std::min<int64_t>((within + 1) * options_.batch_size,
                           options_.samples);
         ++i) {
      // Another order in each epoch.
      chosen.push_back(
          (i * 7 + index / batches_per_epoch()) % options_.samples);
    }
    return batch_of(chosen);
  }

  data::Batch batch_of(const std::vector<int64_t>& samples) const {
    data::Batch batch;
    std::vector<std::vector<int32_t>> rows;
    for (int64_t sample : samples) {
      for (int answer = 0; answer < (options_.pairs ? 2 : 1); ++answer) {
        rows.push_back(tokens_of(sample, answer));
        batch.samples.push_back(sample);
      }
    }
    batch.rows = static_cast<int>(rows.size());
    for (const auto& row : rows) {
      batch.length = std::max(batch.length, static_cast<int>(row.size()));
    }
    for (size_t r = 0; r < rows.size(); ++r) {
      for (int i = 0; i < batch.length; ++i) {
        const bool there = i < static_cast<int>(rows[r].size());
        batch.tokens.push_back(there ? rows[r][i] : 0);
        // The first two tokens are the prompt.
        batch.targets.push_back(
            there && i >= 2 && batch.samples[r] != options_.without_targets);
      }
      if (options_.pairs && r % 2 == 0) {
        batch.pairs.push_back({static_cast<int>(r), static_cast<int>(r) + 1});
      }
    }
    return batch;
  }

  data::DataSummary summary() const override {
    return {};
  }
  int64_t largest_batch() const override {
    int64_t best = 0;
    for (int64_t i = 1; i < batches_per_epoch(); ++i) {
      if (size(batch(i)) > size(batch(best))) {
        best = i;
      }
    }
    return best;
  }
  std::string place(int64_t sample) const override {
    return "toy.jsonl: line " + std::to_string(sample + 1);
  }

 private:
  static int size(const data::Batch& batch) {
    return batch.rows * batch.length;
  }
  std::vector<int32_t> tokens_of(int64_t sample, int answer) const {
    uint64_t state = 77 + 1000 * static_cast<uint64_t>(sample);
    const auto next = [&](int below) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      return static_cast<int>((state >> 33) % static_cast<uint64_t>(below));
    };
    std::vector<int32_t> tokens = {next(12) + 1, next(12) + 1};
    state += static_cast<uint64_t>(answer) * 17;
    for (int left = 1 + next(options_.longest); left > 0; --left) {
      // What follows has something to do with what is before it.
      tokens.push_back((tokens.back() * 5 + next(2) + answer) % 12 + 1);
    }
    return tokens;
  }

  Options options_;
};

}  // namespace mlxx::train
