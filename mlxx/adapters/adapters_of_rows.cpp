#include <algorithm>

#include "mlxx/adapters/mounted_adapter.h"
#include "mlxx/base/error.h"

namespace mlxx::adapters {
namespace {

// The stack of the rows from `first` to `end`; null: none.
struct Run {
  const AdapterStack* stack;
  int first;
  int end;
};

template <typename Change>
using Changes = std::unordered_map<const Parameter*, Change> MountedAdapter::*;

template <typename Change>
const Change* change_of(
    const MountedAdapter& adapter,
    Changes<Change> changes,
    const Parameter& weight) {
  auto found = (adapter.*changes).find(&weight);
  return found == (adapter.*changes).end() ? nullptr : &found->second;
}

template <typename Change>
bool touches(
    const AdapterStack* stack,
    Changes<Change> changes,
    const Parameter& weight) {
  return stack && std::ranges::any_of(stack->adapters(), [&](const auto& one) {
           return change_of(*one, changes, weight) != nullptr;
         });
}

// The part of an array that a run has, and the whole of it.
using RowsOf = std::function<mx::array(const mx::array&)>;
using Plain = std::function<mx::array(bool with_bias)>;

class AdaptersOfRows : public nn::RowAdapters {
 public:
  explicit AdaptersOfRows(
      std::vector<std::shared_ptr<const AdapterStack>> stacks)
      : stacks_(std::move(stacks)) {
    for (int row = 0; row < static_cast<int>(stacks_.size()); ++row) {
      const AdapterStack* stack = stacks_[static_cast<size_t>(row)].get();
      if (runs_.empty() || runs_.back().stack != stack) {
        runs_.push_back({stack, row, row});
      }
      runs_.back().end = row + 1;
    }
  }

  std::optional<mx::array> product(
      const Parameter& weight,
      const std::optional<Parameter>& bias,
      const mx::array& x,
      const Plain& plain) const override {
    return by_runs(
        &MountedAdapter::linear,
        weight,
        x.shape(0),
        plain,
        [&](const AdapterStack& stack,
            const RowsOf& rows_of,
            const Plain& own) {
          return changed(stack, weight, bias, rows_of(x), own);
        });
  }

  std::optional<mx::array> rows(
      const Parameter& table,
      const mx::array& ids,
      const std::function<mx::array()>& plain) const override {
    // Positions may be one row for all.
    bool shared = rows_apart() && ids.shape(0) == 1;
    mx::Shape shape = ids.shape();
    shape[0] = shared ? static_cast<int>(stacks_.size()) : shape[0];
    auto spread = [&](const mx::array& array) {
      mx::Shape wanted = array.shape();
      wanted[0] = shape[0];
      return shared ? mx::broadcast_to(array, wanted) : array;
    };
    mx::array each = spread(ids);
    return one_after_another(
        &MountedAdapter::embeddings,
        table,
        shape[0],
        [&] { return spread(plain()); },
        [&](const EmbeddingChange& change,
            const RowsOf& rows_of,
            const mx::array& y) { return change.rows(rows_of(each), y); });
  }

  std::optional<mx::array> head(
      const Parameter& table,
      const mx::array& x,
      const std::function<mx::array()>& plain) const override {
    return one_after_another(
        &MountedAdapter::embeddings,
        table,
        x.shape(0),
        plain,
        [&](const EmbeddingChange& change,
            const RowsOf& rows_of,
            const mx::array& y) { return change.head(rows_of(x), y); });
  }

  std::optional<mx::array> expert_product(
      const Parameter& weight,
      const mx::array& x,
      const mx::array& indices,
      bool sorted,
      const std::function<mx::array()>& plain) const override {
    return one_after_another(
        &MountedAdapter::experts,
        weight,
        x.shape(0),
        plain,
        [&](const ExpertChange& change,
            const RowsOf& rows_of,
            const mx::array& y) {
          return mx::add(y, change.delta(rows_of(x), rows_of(indices), sorted));
        });
  }

  bool changes(const Parameter& experts) const override {
    return std::ranges::any_of(runs_, [&](const Run& run) {
      return touches(run.stack, &MountedAdapter::experts, experts);
    });
  }

  bool rows_apart() const override {
    return runs_.size() > 1;
  }

  std::vector<std::shared_ptr<const kernels::DecoderChanges>>
  changes_of_decoder(const kernels::DecoderWeights& weights, int rows)
      const override {
    check_rows(rows);
    std::vector<std::shared_ptr<const kernels::DecoderChanges>> changes;
    for (const auto& stack : stacks_) {
      changes.push_back(stack ? stack->changes_of(weights) : nullptr);
    }
    return changes;
  }

 private:
  // by_runs() of changes that each make more of the result so far.
  template <typename Change, typename Step>
  std::optional<mx::array> one_after_another(
      Changes<Change> changes,
      const Parameter& weight,
      int rows,
      const std::function<mx::array()>& plain,
      const Step& step) const {
    return by_runs(
        changes,
        weight,
        rows,
        [&](bool) { return plain(); },
        [&](const AdapterStack& stack,
            const RowsOf& rows_of,
            const Plain& own) {
          mx::array y = own(true);
          for (const Change* change : all_changes(stack, changes, weight)) {
            y = step(*change, rows_of, y);
          }
          return y;
        });
  }

  // What `changed` makes of the rows of each run that an adapter touches, the
  // plain result of the others; nothing if none is touched.
  template <typename Change, typename Changed>
  std::optional<mx::array> by_runs(
      Changes<Change> changes,
      const Parameter& weight,
      int rows,
      const Plain& plain,
      const Changed& changed) const {
    auto touched = [&](const Run& run) {
      return touches(run.stack, changes, weight);
    };
    if (std::ranges::none_of(runs_, touched)) {
      return std::nullopt;
    }
    if (runs_.size() == 1) {
      auto whole = [](const mx::array& array) { return array; };
      return changed(*runs_[0].stack, whole, plain);
    }
    check_rows(rows);
    std::optional<mx::array> all[2];
    std::vector<mx::array> parts;
    for (const Run& run : runs_) {
      auto rows_of = [&](const mx::array& array) {
        mx::Shape start(array.ndim(), 0);
        mx::Shape stop = array.shape();
        start[0] = run.first;
        stop[0] = run.end;
        return mx::slice(array, start, stop);
      };
      auto own = [&](bool with_bias) {
        std::optional<mx::array>& whole = all[with_bias ? 1 : 0];
        if (!whole) {
          whole = plain(with_bias);
        }
        return rows_of(*whole);
      };
      parts.push_back(
          touched(run) ? changed(*run.stack, rows_of, own) : own(true));
    }
    return mx::concatenate(parts, 0);
  }

  void check_rows(int rows) const {
    if (rows != static_cast<int>(stacks_.size())) {
      fail(
          ErrorKind::internal,
          "adapters",
          "of {} rows in a pass of {}",
          stacks_.size(),
          rows);
    }
  }

  template <typename Change>
  static std::vector<const Change*> all_changes(
      const AdapterStack& stack,
      Changes<Change> changes,
      const Parameter& weight) {
    std::vector<const Change*> all;
    for (const auto& adapter : stack.adapters()) {
      if (const Change* change = change_of(*adapter, changes, weight)) {
        all.push_back(change);
      }
    }
    return all;
  }

  static mx::array changed(
      const AdapterStack& stack,
      const Parameter& weight,
      const std::optional<Parameter>& bias,
      const mx::array& x,
      const Plain& plain) {
    std::optional<mx::array> y;
    for (const LinearChange* change :
         all_changes(stack, &MountedAdapter::linear, weight)) {
      if (!change->is_dora()) {
        y = mx::add(y ? *y : plain(true), change->delta(x));
        continue;
      }
      // mlx-lm multiplies with the dequantized weight here.
      bool reference = weight.quantization() && !weight.packed();
      mx::array own = reference
          ? mx::matmul(x, mx::transpose(dense_weight(weight)))
          : plain(false);
      y = change->gained(mx::add(own, change->delta(x)));
      if (bias) {
        y = mx::add(*y, bias->value());
      }
    }
    return *y;
  }

  std::vector<std::shared_ptr<const AdapterStack>> stacks_;
  std::vector<Run> runs_;
};

}  // namespace

std::unique_ptr<nn::RowAdapters> adapters_of_rows(
    std::vector<std::shared_ptr<const AdapterStack>> stacks) {
  return std::make_unique<AdaptersOfRows>(std::move(stacks));
}

}  // namespace mlxx::adapters
