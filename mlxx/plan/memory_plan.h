#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "mlxx/models/model.h"
#include "mlxx/plan/state_growth.h"

namespace mlxx::plan {

// What is asked of a model.
struct Workload {
  int context = 0;  // tokens of each row, prompt and answer
  int rows = 1;     // decoded together
  int prefill_step = 512;
  size_t prefix_cache_bytes = 0;  // that states of earlier prompts may take
  size_t adapter_bytes = 0;
};

// Bytes of MLX's memory that a workload takes at most, by what for.
struct MemoryPlan {
  size_t weights = 0;
  size_t state = 0;    // keys and values, and what other layers remember
  size_t prefill = 0;  // of one chunk of a prompt, until it is computed
  size_t logits = 0;   // of one token of every row, sampling included
  size_t prefix_cache = 0;
  size_t adapters = 0;

  size_t total() const {
    return weights + state + prefill + logits + prefix_cache + adapters;
  }
};

// The memory contract of one model on this device: `mlxx fit` prints it, and
// requests are admitted by it. Calls from the thread that owns MLX.
class ModelMemory {
 public:
  // A loaded model, or one of LoadOptions::sizes_only, which says the same.
  explicit ModelMemory(std::shared_ptr<const models::Model> model);

  const models::ModelSummary& summary() const {
    return summary_;
  }
  const std::vector<StateGrowth>& growth() const {
    return growth_;
  }

  size_t weights() const;
  // Of one row that holds so many tokens.
  size_t state(int tokens) const;
  // As much of it as forks of a row share with it: whole blocks.
  size_t shared_state(int tokens) const;
  // Beyond the state, while `chunk` tokens are computed that end at `context`.
  size_t prefill(int chunk, int context) const;
  size_t logits(int rows) const;

  // invalid_request for a context, rows or step below 1.
  MemoryPlan plan(const Workload& workload) const;

  // The most tokens (rows) with which the rest of the workload stays within
  // `budget` bytes; 0 if not even one does. At most `limit`.
  int largest_context(Workload workload, size_t budget, int limit) const;
  int largest_batch(Workload workload, size_t budget, int limit) const;

 private:
  size_t traced_prefill(int chunk, int context) const;

  std::shared_ptr<const models::Model> model_;
  models::ModelSummary summary_;
  size_t weights_ = 0;
  std::vector<StateGrowth> growth_;
  bool in_blocks_ = false;  // of a kernel that works outside of MLX's memory
  mutable std::map<std::pair<int, int>, size_t> traced_;
};

}  // namespace mlxx::plan
