#include "mlxx/data/epoch_plan.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "mlxx/data/shuffled_order.h"

namespace mlxx::data {
namespace {

// Batches out of which samples of like length are put together.
constexpr uint32_t kMixedBatches = 32;
// How often each packed sample is offered for another one, and among how many
// of the next shorter ones that is.
constexpr uint32_t kExchanges = 16;
constexpr uint32_t kAlike = 16;

// Samples of different rows change places where both still fit: best fit alone
// would put the same lengths together in every epoch. `order`: the longest
// first.
void exchange(
    std::span<const uint32_t> order,
    std::span<const int32_t> lengths,
    ShuffleSource& source,
    std::span<int64_t> left,
    std::span<uint32_t> row_of) {
  const uint64_t count = order.size();
  for (uint64_t i = 0; i < count * kExchanges; ++i) {
    uint64_t at = source.below(count);
    uint64_t other = at + 1 + source.below(kAlike);
    if (other >= count) {
      continue;
    }
    uint32_t longer = order[at];
    uint32_t shorter = order[other];
    int64_t more = lengths[longer] - lengths[shorter];
    uint32_t& from = row_of[longer];
    uint32_t& to = row_of[shorter];
    if (from != to && left[to] >= more) {
      left[from] += more;
      left[to] -= more;
      std::swap(from, to);
    }
  }
}

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

// Best fit, the longest samples first: how many rows there are depends on
// lengths alone.
void EpochPlan::pack(
    std::span<const int32_t> lengths,
    const Options& options,
    int64_t epoch) {
  ShuffleSource source(options.seed, static_cast<uint64_t>(epoch));
  auto count = static_cast<uint32_t>(lengths.size());
  std::vector<uint32_t> order = shuffled(count, source);
  std::ranges::stable_sort(order, [&](uint32_t a, uint32_t b) {
    return lengths[a] > lengths[b];
  });
  std::vector<int64_t> left;  // tokens, of rows
  std::vector<uint32_t> row_of(count);
  // Tokens left in rows -> rows, of which the last is taken.
  std::map<int64_t, std::vector<uint32_t>> open;
  for (uint32_t sample : order) {
    auto best = open.lower_bound(lengths[sample]);
    auto row = static_cast<uint32_t>(left.size());
    if (best == open.end()) {
      left.push_back(options.row_tokens);
    } else {
      row = best->second.back();
      best->second.pop_back();
      if (best->second.empty()) {
        open.erase(best);
      }
    }
    row_of[sample] = row;
    left[row] -= lengths[sample];
    open[left[row]].push_back(row);
  }
  exchange(order, lengths, source, left, row_of);
  std::vector<std::vector<uint32_t>> rows(left.size());
  for (uint32_t sample : order) {
    rows[row_of[sample]].push_back(sample);
  }
  for (uint32_t row : shuffled(static_cast<uint32_t>(rows.size()), source)) {
    add_batch(rows[row]);
  }
}

}  // namespace mlxx::data
