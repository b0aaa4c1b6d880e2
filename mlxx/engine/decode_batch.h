#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "mlxx/engine/active_request.h"
#include "mlxx/engine/runner.h"

namespace mlxx::engine {

// What becomes of the rows of a step.
class StepListener {
 public:
  virtual ~StepListener() = default;
  virtual void chosen(Sequence& sequence, Chosen chosen) = 0;
  // The row cannot go on and its state is not to be trusted.
  virtual void failed(
      Sequence& sequence,
      std::shared_ptr<const Error> error) = 0;
};

// The rows of one model that are decoded together. Step k + 1 is handed to
// the device before the tokens of step k are read; only rows whose masks
// depend on those tokens make the choice (not the logits) wait for them.
class DecodeBatch {
 public:
  void join(Sequence& sequence);
  struct Round {
    int read_rows = 0;  // of the step that was read; 0 if none was
    std::shared_ptr<const Error> error;
  };
  // Begins a step for all that go on, and reads the one before. Never throws.
  // What failed, if the runner did (one row alone is not the runner's fault).
  Round advance(Runner& runner, StepListener& listener);
  // Reads the step in flight, if there is one, and begins none: the device
  // gets something else to do now, and nobody's token should wait for that.
  Round settle(Runner& runner, StepListener& listener);
  // Drops sequences that ended and are in no step.
  void drop_finished();

  // Whether advance() has something to do.
  bool busy() const;
  bool is_in_flight() const {
    return in_flight_.has_value();
  }
  // Those that go on.
  int rows() const;

 private:
  struct InFlight {
    std::unique_ptr<Step> step;
    std::vector<Sequence*> rows;
  };
  std::vector<Sequence*> rows_to_feed() const;
  static InFlight begin(Runner& runner, const std::vector<Sequence*>& rows);
  // What went wrong, if the runner's part did.
  static std::shared_ptr<const Error>
  choose(Runner& runner, StepListener& listener, InFlight& next);
  void read(Runner& runner, StepListener& listener, Round& round);
  static void fail_rows(
      const std::vector<Sequence*>& rows,
      StepListener& listener,
      const std::shared_ptr<const Error>& error,
      Round& round);

  std::vector<Sequence*> sequences_;
  std::optional<InFlight> in_flight_;
};

}  // namespace mlxx::engine
