#include "mlxx/train/faulty_samples.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include <fmt/format.h>

#include "mlxx/core/host_values.h"
#include "mlxx/train/optimizer.h"

namespace mlxx::train {

namespace {

constexpr size_t kNamed = 4;

std::vector<int64_t> with_bad_scores(
    const data::Batch& batch,
    const mx::array& scores) {
  const HostValues<float> values(scores, "train");
  const auto is_bad = [&](int row, int begin, int end) {
    const auto line = values.span().subspan(
        static_cast<size_t>(row) * batch.length + begin,
        end - begin);
    return std::any_of(line.begin(), line.end(), [](float value) {
      return !std::isfinite(value);
    });
  };
  std::vector<int64_t> samples;
  if (batch.segments.empty()) {
    for (int row = 0; row < batch.rows; ++row) {
      if (is_bad(row, 0, batch.length)) {
        samples.push_back(batch.samples[row]);
      }
    }
  }
  for (const auto& segment : batch.segments) {
    if (is_bad(0, segment.begin, segment.end)) {
      samples.push_back(segment.sample);
    }
  }
  return samples;
}

}  // namespace

std::string faulty_samples(
    const Differentiator& differentiator,
    const data::Batch& batch,
    const ScoreLoss& loss,
    const std::function<std::string(int64_t sample)>& place) {
  auto samples = with_bad_scores(batch, differentiator.scores(batch, false));
  if (samples.empty()) {
    const auto result = differentiator.apply(batch, loss);
    const float norm = item_of<float>(gradient_norm(result.gradients), "train");
    const float value = item_of<float>(result.sums.loss, "train");
    if (!std::isfinite(norm) || !std::isfinite(value)) {
      samples = batch.samples;
    }
  }
  std::sort(samples.begin(), samples.end());
  samples.erase(std::unique(samples.begin(), samples.end()), samples.end());
  std::string text;
  for (size_t i = 0; i < std::min(samples.size(), kNamed); ++i) {
    text += (i == 0 ? "" : ", ") + place(samples[i]);
  }
  if (samples.size() > kNamed) {
    text += fmt::format(" and {} more", samples.size() - kNamed);
  }
  return text;
}

}  // namespace mlxx::train
