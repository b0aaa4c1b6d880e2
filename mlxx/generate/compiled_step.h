#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "mlxx/core/compiled_function.h"
#include "mlxx/models/model.h"

namespace mlxx::generate {

// The decode step of one token as a graph that is recorded once and then
// serves every position: rope and the cache's writes take the position as an
// array, and attention reads the leading part of the caches' arrays as a view.
// Logits and caches are equal, bit for bit, to Model::forward_last. Where a
// graph is impossible that is what runs, and fallback() says why; a step is
// never lost. Not thread-safe, of the thread that calls it first.
class CompiledStep {
 public:
  // The model must outlive it. Weights that are swapped are recorded anew.
  explicit CompiledStep(const models::Model& model);
  ~CompiledStep();
  CompiledStep(const CompiledStep&) = delete;
  CompiledStep& operator=(const CompiledStep&) = delete;

  const models::Model& model() const {
    return model_;
  }

  // token [1, 1] int32 -> logits [1, V]; appends to the caches, which must be
  // of this model. Empty caches are filled by the plain step.
  mx::array forward_last(const mx::array& token, cache::CacheList& caches);

  // Why steps are not compiled any more; empty as long as they are.
  const std::string& fallback() const {
    return fallback_;
  }
  // Times that the graph was recorded; more than one per set of weights makes
  // it fall back.
  int trace_count() const {
    return step_.trace_count();
  }
  // Steps that ran as a graph.
  int compiled_steps() const {
    return compiled_steps_;
  }

 private:
  struct Layout;

  std::vector<mx::array> record(const std::vector<mx::array>& inputs) const;
  bool run(
      const mx::array& token,
      cache::CacheList& caches,
      std::vector<cache::TokenSlot>& slots,
      std::vector<mx::array>& outputs);
  void fall_back(std::string reason);

  const models::Model& model_;
  std::unique_ptr<Layout> layout_;  // of the inputs that are recorded
  CompiledFunction step_;
  ExpectOneTrace once_{step_};
  std::string fallback_;
  int compiled_steps_ = 0;
};

}  // namespace mlxx::generate
