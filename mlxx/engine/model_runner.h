#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>

#include "mlxx/adapters/mounted.h"
#include "mlxx/engine/prefix_cache.h"
#include "mlxx/engine/runner.h"
#include "mlxx/kernels/select.h"
#include "mlxx/models/model.h"

namespace mlxx::engine {

struct ModelRunnerOptions {
  // What the prefix cache keeps apart from other models' states.
  std::string space;
  // Shared with other runners, outlives this one; null: nothing is reused.
  PrefixCache* prefixes = nullptr;
  // With the threads that the model computes with, best; absent: as the
  // environment says, on one thread.
  std::optional<kernels::Selection> kernels = {};
  // states_identity() of the checkpoint, for states on disk; empty: none are
  // kept there.
  std::string states_identity = {};
};

struct RowState;

// Rows of one loaded model, each with caches of its own; a step computes all of
// its rows in one pass. A row's tokens and log-probabilities do not depend on
// what else runs, to the last bit with our CPU kernels. Rows with adapters
// are part of that pass where the model runs as one program; else they run
// layer by layer, all of them in one more pass.
class ModelRunner : public Runner {
 public:
  ModelRunner(
      std::shared_ptr<const models::Model> model,
      std::shared_ptr<const ModelText> text,
      ModelRunnerOptions options);
  ~ModelRunner() override;

  std::shared_ptr<const ModelText> text() const override {
    return text_;
  }
  int vocab_size() const override {
    return vocab_size_;
  }
  const models::Model& model() const {
    return *model_;
  }
  // What RowSettings::adapter names.
  adapters::MountedAdapters& adapters() {
    return adapters_;
  }

  Opened open(std::span<const int32_t> prompt, const RowSettings& settings)
      override;
  std::unique_ptr<Row> fork(const Row& row, const RowSettings& settings)
      override;
  int prefill(Row& row, int tokens) override;
  int least_chunk() const override;
  bool joins_prompts() const override;
  bool prefill_together(std::span<Row* const> rows) override;
  std::unique_ptr<Step> begin(std::span<Row* const> rows) override;
  void choose(Step& step, std::span<const TokenMask> masks) override;
  std::vector<Chosen> read(Step& step) override;
  std::vector<AnswerToken> prompt_logprobs(
      std::span<const int32_t> prompt,
      int top,
      const std::string& adapter) override;
  void close(std::unique_ptr<Row> row, std::span<const int32_t> tokens)
      override;

 private:
  // Rows with an adapter have states of their own, told apart by what is in
  // its files.
  std::string space_of(const adapters::AdapterStack* adapters);
  cache::CacheList make_cache(const adapters::AdapterStack* adapters) const;
  mx::array logits_of(
      const mx::array& fed,
      std::span<const std::shared_ptr<RowState>> rows) const;
  void check_prompt(std::span<const int32_t> prompt) const;
  void remember(
      const std::string& space,
      std::span<const int32_t> tokens,
      const cache::CacheList& caches);

  std::shared_ptr<const models::Model> model_;
  std::shared_ptr<const ModelText> text_;
  ModelRunnerOptions options_;
  kernels::Selection kernels_;
  adapters::MountedAdapters adapters_;
  std::set<std::string> adapter_spaces_;  // that prompts were kept under
  int vocab_size_;
  int steps_ = 0;
};

}  // namespace mlxx::engine
