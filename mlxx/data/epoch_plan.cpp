#include "mlxx/data/epoch_plan.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "mlxx/data/shuffled_order.h"

namespace mlxx::data {
namespace {

// Batches out of which samples of like length are put together.
constexpr uint32_t kMixedBatches = 32;

}  // namespace

EpochPlan::EpochPlan(
    std::span<const int32_t> lengths,
    const Options& options,
    int64_t epoch) {
  samples_.reserve(lengths.size());
  if (!options.shuffle) {
    in_order(lengths, options);
  } else if (options.row_tokens > 0) {
    pack(lengths, options, epoch);
  } else {
    mix(lengths, options, epoch);
  }
}

std::span<const uint32_t> EpochPlan::samples(int64_t batch) const {
  auto at = static_cast<size_t>(batch);
  uint32_t begin = at == 0 ? 0 : ends_[at - 1];
  return std::span(samples_).subspan(begin, ends_.at(at) - begin);
}

void EpochPlan::add_batch(std::span<const uint32_t> samples) {
  samples_.insert(samples_.end(), samples.begin(), samples.end());
  ends_.push_back(static_cast<uint32_t>(samples_.size()));
}

void EpochPlan::in_order(
    std::span<const int32_t> lengths,
    const Options& options) {
  std::vector<uint32_t> batch;
  int64_t tokens = 0;
  for (uint32_t sample = 0; sample < lengths.size(); ++sample) {
    bool full = options.row_tokens > 0
        ? tokens + lengths[sample] > options.row_tokens
        : batch.size() == static_cast<size_t>(options.batch_size);
    if (full && !batch.empty()) {
      add_batch(batch);
      batch.clear();
      tokens = 0;
    }
    batch.push_back(sample);
    tokens += lengths[sample];
  }
  if (!batch.empty()) {
    add_batch(batch);
  }
}

void EpochPlan::mix(
    std::span<const int32_t> lengths,
    const Options& options,
    int64_t epoch) {
  ShuffleSource source(options.seed, static_cast<uint64_t>(epoch));
  auto count = static_cast<uint32_t>(lengths.size());
  auto batch_size = static_cast<uint32_t>(options.batch_size);
  std::vector<uint32_t> order = shuffled(count, source);
  uint64_t window = uint64_t{batch_size} * kMixedBatches;
  for (uint64_t begin = 0; begin < count; begin += window) {
    auto end = std::min<uint64_t>(begin + window, count);
    std::stable_sort(
        order.begin() + static_cast<std::ptrdiff_t>(begin),
        order.begin() + static_cast<std::ptrdiff_t>(end),
        [&](uint32_t a, uint32_t b) { return lengths[a] < lengths[b]; });
  }
  uint32_t batches = count / batch_size + (count % batch_size != 0 ? 1 : 0);
  for (uint32_t batch : shuffled(batches, source)) {
    uint64_t begin = uint64_t{batch} * batch_size;
    add_batch(std::span(order).subspan(
        begin,
        std::min<uint64_t>(batch_size, count - begin)));
  }
}

// Best fit, the longest samples first.
void EpochPlan::pack(
    std::span<const int32_t> lengths,
    const Options& options,
    int64_t epoch) {
  ShuffleSource source(options.seed, 0);
  auto count = static_cast<uint32_t>(lengths.size());
  std::vector<uint32_t> order = shuffled(count, source);
  std::ranges::stable_sort(order, [&](uint32_t a, uint32_t b) {
    return lengths[a] > lengths[b];
  });
  std::vector<std::vector<uint32_t>> rows;
  // Tokens left in rows -> rows, of which the last is taken.
  std::map<int64_t, std::vector<uint32_t>> open;
  for (uint32_t sample : order) {
    auto best = open.lower_bound(lengths[sample]);
    int64_t left = options.row_tokens;
    uint32_t row = 0;
    if (best == open.end()) {
      row = static_cast<uint32_t>(rows.size());
      rows.emplace_back();
    } else {
      left = best->first;
      row = best->second.back();
      best->second.pop_back();
      if (best->second.empty()) {
        open.erase(best);
      }
    }
    rows[row].push_back(sample);
    open[left - lengths[sample]].push_back(row);
  }
  ShuffleSource of_epoch(options.seed, static_cast<uint64_t>(epoch) + 1);
  for (uint32_t row : shuffled(static_cast<uint32_t>(rows.size()), of_epoch)) {
    add_batch(rows[row]);
  }
}

}  // namespace mlxx::data
