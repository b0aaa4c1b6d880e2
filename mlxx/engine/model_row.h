#pragma once

#include <optional>
#include <vector>

#include "mlxx/adapters/mounted.h"
#include "mlxx/cache/cache.h"
#include "mlxx/engine/batch_sampler.h"
#include "mlxx/engine/runner.h"

// What a ModelRunner's rows and steps are; for its sources only.
namespace mlxx::engine {

// A row lives on in the steps that compute it when its owner has closed it.
struct RowState {
  RowSettings settings;
  // Null: none. Stays when they are unmounted.
  std::shared_ptr<const adapters::AdapterStack> adapters;
  std::string space;  // in the prefix cache
  cache::CacheList caches;
  std::vector<int32_t> tokens;  // prompt and answer as far as it was read
  int prompt_tokens = 0;
  int computed = 0;  // tokens that the caches hold, once all steps have run
  int chosen = 0;    // tokens of the answer, read or not

  // Tokens that follow `tokens` and were not read yet, oldest first: where
  // they are in the arrays of their steps.
  struct Unread {
    mx::array tokens;  // [B] int32
    int index;
  };
  std::vector<Unread> unread;

  int length() const {
    return static_cast<int>(tokens.size() + unread.size());
  }
};

struct StepState {
  std::vector<std::shared_ptr<RowState>> rows;
  mx::array fed;     // [B] int32
  mx::array logits;  // [B, V]
  std::optional<ChosenTokens> chosen;
};

class ModelRow : public Row {
 public:
  explicit ModelRow(std::shared_ptr<RowState> state)
      : state(std::move(state)) {}

  const std::shared_ptr<RowState> state;
};

class ModelStep : public Step {
 public:
  explicit ModelStep(std::shared_ptr<StepState> state)
      : state(std::move(state)) {}

  const std::shared_ptr<StepState> state;
};

inline const std::shared_ptr<RowState>& state_of(const Row& row) {
  const auto* own = dynamic_cast<const ModelRow*>(&row);
  if (!own) {
    fail(ErrorKind::internal, "rows", "a row of another runner");
  }
  return own->state;
}

}  // namespace mlxx::engine
