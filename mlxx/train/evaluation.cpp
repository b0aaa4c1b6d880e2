#include <algorithm>
#include <chrono>
#include <optional>

#include "mlxx/core/host_values.h"
#include "mlxx/train/trainer.h"

namespace mlxx::train {

namespace {

double number_of(const mx::array& value) {
  return item_of<float>(value, "evaluation");
}

}  // namespace

Evaluation evaluate(
    const Objective& objective,
    const Differentiator& differentiator,
    const ReferenceScores* reference,
    const data::TrainingData& data,
    int64_t batches,
    TrainObserver* observer,
    const std::function<bool()>& is_cancelled) {
  const auto start = std::chrono::steady_clock::now();
  const int64_t all = batches < 0 ? data.batches_per_epoch()
                                  : std::min(batches, data.batches_per_epoch());
  Evaluation result;
  double weight = 0;
  for (int64_t index = 0; index < all; ++index) {
    if (is_cancelled && is_cancelled()) {
      return {};
    }
    const data::Batch batch = data.batch(index);
    const int64_t count = objective.count(batch);
    if (observer) {
      observer->on_evaluation_batch(index + 1, all);
    }
    if (count == 0) {
      ++result.skipped_batches;
      continue;
    }
    std::optional<mx::array> before;
    if (objective.options().method == Method::dpo && reference) {
      before = reference->of(batch);
    }
    const LossSums sums = objective.loss(batch, count, before)(
        differentiator.scores(batch, false));
    std::vector<mx::array> wanted = {sums.loss};
    for (const auto& [name, value] : sums.metrics) {
      wanted.push_back(value);
    }
    mx::eval(wanted);
    const auto part = static_cast<double>(count);
    result.loss += number_of(sums.loss) * part;
    for (const auto& [name, value] : sums.metrics) {
      result.metrics[name] += number_of(value) * part;
    }
    weight += part;
    ++result.batches;
  }
  if (weight > 0) {
    result.loss /= weight;
    for (auto& [name, value] : result.metrics) {
      value /= weight;
    }
  }
  result.seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start)
          .count();
  return result;
}

}  // namespace mlxx::train
