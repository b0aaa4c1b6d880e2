#include "mlxx/kernels/expert_matmul/expert_panels.h"

#include <algorithm>
#include <limits>

#include "mlxx/base/error.h"

namespace mlxx::kernels {
namespace {

// What reading and unpacking a panel costs, in rows multiplied with it.
constexpr int64_t kPanelRows = 4;
// Waking the threads costs more than preparing fewer rows.
constexpr size_t kFewRows = 8;

[[noreturn]] void fail_no_matrix() {
  fail(
      ErrorKind::internal,
      "expert_matmul",
      "a stack of experts was used as one matrix");
}

mx::array stack_of(const std::vector<mx::array>& parts) {
  return mx::stack(parts, 0);
}

}  // namespace

RowGroups::RowGroups(std::span<const int32_t> experts, int count) {
  std::vector<int64_t> counts(count);
  auto is_routed = [&](int32_t e) { return e >= 0 && e < count; };
  for (int32_t e : experts) {
    if (is_routed(e)) {
      ++counts[e];
    }
  }
  std::vector<int64_t> next(count);
  int64_t routed = 0;
  for (int e = 0; e < count; ++e) {
    next[e] = routed;
    most_ = std::max(most_, counts[e]);
    if (counts[e] > 0) {
      groups_.push_back({e, routed, counts[e]});
    }
    routed += counts[e];
  }
  order_.resize(routed);
  for (size_t row = 0; row < experts.size(); ++row) {
    auto index = static_cast<int64_t>(row);
    if (is_routed(experts[row])) {
      order_[next[experts[row]]++] = index;
    } else {
      unrouted_.push_back(index);
    }
  }
}

void for_panels_of_thread(
    const RowGroups& rows,
    int64_t panels_per_expert,
    const ThreadPool& threads,
    int thread,
    const std::function<
        void(const RowGroups::Group& group, int64_t first, int64_t last)>&
        work) {
  int64_t total = 0;
  for (const auto& group : rows.groups()) {
    total += panels_per_expert * (kPanelRows + group.count);
  }
  auto range = threads.split(total, thread);
  auto from = static_cast<int64_t>(range.begin);
  auto to = static_cast<int64_t>(range.end);
  int64_t start = 0;
  for (const auto& group : rows.groups()) {
    int64_t cost = kPanelRows + group.count;
    // The first panel that begins at `at` or later.
    auto first_from = [&](int64_t at) {
      int64_t panel = at <= start ? 0 : (at - start + cost - 1) / cost;
      return std::min(panel, panels_per_expert);
    };
    int64_t first = first_from(from);
    int64_t last = first_from(to);
    if (first < last) {
      work(group, first, last);
    }
    start += panels_per_expert * cost;
  }
}

void prepare_rows(
    PreparedRows& prepared,
    const RowGroups& rows,
    ThreadPool& threads,
    const std::function<const float*(int64_t index)>& row) {
  size_t count = rows.order().size();
  auto prepare = [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      auto index = static_cast<int64_t>(i);
      prepared.prepare(index, row(index));
    }
  };
  if (count < kFewRows) {
    prepare(0, count);
    return;
  }
  threads.run([&](int thread) {
    auto range = threads.split(count, thread);
    prepare(range.begin, range.end);
  });
}

ActivationRows
rows_of(const ActivationRows& all, int64_t first, int64_t count) {
  auto skip = [first](auto* numbers, int64_t per_row) {
    return numbers ? numbers + first * per_row : nullptr;
  };
  int64_t chunks = all.in / kChunk;
  ActivationRows rows = all;
  rows.rows = count;
  rows.numbers = skip(all.numbers, all.in);
  rows.high = skip(all.high, all.in);
  rows.low = skip(all.low, all.in);
  rows.rounded = skip(all.rounded, all.in);
  rows.scales = skip(all.scales, chunks);
  rows.sums = skip(all.sums, chunks);
  rows.byte_sums = skip(all.byte_sums, 2 * chunks);
  return rows;
}

ExpertPanels::ExpertPanels(
    std::vector<std::shared_ptr<const PanelMatrix>> experts,
    const Selection& selection)
    : experts_(std::move(experts)),
      kernels_(product_kernels(selection)),
      threads_(
          selection.threads ? selection.threads
                            : std::make_shared<ThreadPool>(1)) {}

size_t ExpertPanels::nbytes() const {
  size_t bytes = 0;
  for (const auto& expert : experts_) {
    bytes += expert->nbytes();
  }
  return bytes;
}

void ExpertPanels::multiply(
    const float* x,
    std::span<const int64_t> sources,
    std::span<const int32_t> experts,
    float* y) const {
  RowGroups rows(experts, count());
  for (int64_t row : rows.unrouted()) {
    std::fill_n(
        y + row * out(),
        out(),
        std::numeric_limits<float>::quiet_NaN());
  }
  const auto& order = rows.order();
  PreparedRows::Needs needs;
  for (const auto& group : rows.groups()) {
    needs.add(expert(group.expert).layout(), kernels_);
  }
  PreparedRows prepared(kernels_);
  prepared.start(static_cast<int64_t>(order.size()), in(), needs);
  prepare_rows(prepared, rows, *threads_, [&](int64_t index) {
    return x + sources[order[index]] * in();
  });
  threads_->run(
      [&](int thread) { multiply_groups(rows, prepared, thread, y); });
}

void ExpertPanels::multiply_groups(
    const RowGroups& rows,
    const PreparedRows& prepared,
    int thread,
    float* y) const {
  PanelScratch scratch;
  std::vector<float> tile(rows.most() * kLanes);
  auto work = [&](const RowGroups::Group& group, int64_t first, int64_t last) {
    const PanelMatrix& matrix = expert(group.expert);
    ActivationRows activations =
        rows_of(prepared.view(matrix.layout()), group.first, group.count);
    for (int64_t p = first; p < last; ++p) {
      matrix.multiply_panel(p, activations, scratch, tile.data());
      int64_t lane = p * kLanes;
      int64_t lanes = std::min<int64_t>(kLanes, out() - lane);
      for (int64_t i = 0; i < group.count; ++i) {
        int64_t row = rows.order()[group.first + i];
        std::copy_n(tile.data() + i * kLanes, lanes, y + row * out() + lane);
      }
    }
  };
  for_panels_of_thread(rows, experts_[0]->panels(), *threads_, thread, work);
}

mx::array PackedExperts::matmul(const mx::array&) const {
  fail_no_matrix();
}

mx::array PackedExperts::take_rows(const mx::array&) const {
  fail_no_matrix();
}

WeightArrays PackedExperts::restore() const {
  std::vector<mx::array> weights, scales, biases;
  for (int e = 0; e < panels_->count(); ++e) {
    WeightArrays arrays = panels_->expert(e).restore();
    weights.push_back(arrays.weight);
    if (arrays.scales) {
      scales.push_back(*arrays.scales);
    }
    if (arrays.biases) {
      biases.push_back(*arrays.biases);
    }
  }
  WeightArrays all{stack_of(weights), std::nullopt, std::nullopt};
  if (!scales.empty()) {
    all.scales = stack_of(scales);
  }
  if (!biases.empty()) {
    all.biases = stack_of(biases);
  }
  return all;
}

mx::array PackedExperts::dequantize() const {
  std::vector<mx::array> parts;
  for (int e = 0; e < panels_->count(); ++e) {
    parts.push_back(panels_->expert(e).dequantize());
  }
  return stack_of(parts);
}

}  // namespace mlxx::kernels
