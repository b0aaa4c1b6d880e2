#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "mlxx/kernels/quantized_matmul/packed_panels.h"

namespace mlxx::kernels {

// Rows put in the order of the experts that they go to.
class RowGroups {
 public:
  struct Group {
    int expert;
    int64_t first;  // in order()
    int64_t count;
  };

  // experts [rows]. Rows of an expert outside [0, count) are in no group.
  RowGroups(std::span<const int32_t> experts, int count);

  // Those with rows, by expert.
  const std::vector<Group>& groups() const {
    return groups_;
  }
  // Rows by expert, those of one expert in their own order.
  const std::vector<int64_t>& order() const {
    return order_;
  }
  const std::vector<int64_t>& unrouted() const {
    return unrouted_;
  }
  // Rows of the largest group.
  int64_t most() const {
    return most_;
  }

 private:
  std::vector<Group> groups_;
  std::vector<int64_t> order_;
  std::vector<int64_t> unrouted_;
  int64_t most_ = 0;
};

// Calls work(group, first, last) for the panels [first, last) of each group
// that are this thread's: of all threads' about equal cost, each a stretch of
// groups.
void for_panels_of_thread(
    const RowGroups& rows,
    int64_t panels_per_expert,
    const ThreadPool& threads,
    int thread,
    const std::function<
        void(const RowGroups::Group& group, int64_t first, int64_t last)>&
        work);

// Prepares row i of the groups' order, which is row(i), for all of them.
void prepare_rows(
    PreparedRows& prepared,
    const RowGroups& rows,
    ThreadPool& threads,
    const std::function<const float*(int64_t index)>& row);

// Rows [first, first + count) of prepared activations.
ActivationRows rows_of(const ActivationRows& all, int64_t first, int64_t count);

// The panels of one layer's experts, all [out, in]. Immutable once made.
class ExpertPanels {
 public:
  // At least one, all of one shape.
  ExpertPanels(
      std::vector<std::shared_ptr<const PanelMatrix>> experts,
      const Selection& selection);

  int count() const {
    return static_cast<int>(experts_.size());
  }
  int out() const {
    return experts_[0]->out();
  }
  int in() const {
    return experts_[0]->in();
  }
  const PanelMatrix& expert(int index) const {
    return *experts_[index];
  }
  size_t nbytes() const;

  // y [rows, out]: row i is row sources[i] of x [..., in] times the transpose
  // of expert experts[i]; NaN where there is no such expert.
  void multiply(
      const float* x,
      std::span<const int64_t> sources,
      std::span<const int32_t> experts,
      float* y) const;

 private:
  void multiply_groups(
      const RowGroups& rows,
      const PreparedRows& prepared,
      int thread,
      float* y) const;

  std::vector<std::shared_ptr<const PanelMatrix>> experts_;
  ProductKernels kernels_;
  std::shared_ptr<ThreadPool> threads_;
};

// What the CPU keeps of a stack of experts.
class PackedExperts : public PackedWeights {
 public:
  explicit PackedExperts(std::shared_ptr<const ExpertPanels> panels)
      : panels_(std::move(panels)) {}

  const std::shared_ptr<const ExpertPanels>& panels() const {
    return panels_;
  }
  // Always internal: a stack is no matrix.
  mx::array matmul(const mx::array& x) const override;
  mx::array take_rows(const mx::array& ids) const override;
  WeightArrays restore() const override;
  size_t nbytes() const override {
    return panels_->nbytes();
  }
  // [experts, out, in] in float32.
  mx::array dequantize() const;

 private:
  std::shared_ptr<const ExpertPanels> panels_;
};

}  // namespace mlxx::kernels
