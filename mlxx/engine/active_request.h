#pragma once

#include <cstdint>
#include <future>
#include <memory>
#include <optional>
#include <vector>

#include "mlxx/engine/answer.h"
#include "mlxx/engine/grammar_builder.h"
#include "mlxx/engine/request.h"
#include "mlxx/engine/runner.h"

namespace mlxx::engine {

struct ActiveRequest;
struct ScheduledModel;

// One choice that is computed: its answer and its row.
struct Sequence {
  ActiveRequest& request;
  Answer answer;
  std::unique_ptr<Row> row;
  int begun = 0;   // steps that fed it
  int unread = 0;  // of those, not read yet
  bool damaged = false;
};

// A request from its admission until the last of its rows is closed.
struct ActiveRequest {
  enum class Stage {
    prefilling,  // not opened, or not all of its prompt is computed
    prefilled,   // waits for its grammar, if it has one
    decoding,
  };

  uint64_t id = 0;
  Request request;
  Sink sink;
  ScheduledModel* model = nullptr;
  std::unique_ptr<Lease> lease;
  std::vector<std::unique_ptr<Sequence>> choices;
  std::future<BuiltGrammar> grammar;
  Stage stage = Stage::prefilling;
  int64_t seed = 0;
  int prompt_left = 0;  // without the last token, which the first step feeds
  bool opened = false;
  int chunk_limit = 0;  // after one chunk did not fit; 0: none
  bool sink_failed = false;
  bool had_error = false;
  bool was_cancelled = false;
  // By the scheduler's clock.
  double submitted = 0;
  double admitted = 0;
  double started = 0;  // its first step

  RowSettings settings(int choice) const;
  // Tokens of the prompt that its rows hold, as far as they are known to.
  size_t computed() const {
    return request.prompt.size() - 1 - static_cast<size_t>(prompt_left);
  }
  bool finished() const;
  // Hands it over, with the times in its finish. Never throws: a sink that
  // does gets nothing more.
  void send(Sequence& sequence, Event event, double now);
  // Ends every choice that has not ended.
  void finish_all(
      FinishReason reason,
      std::shared_ptr<const Error> error,
      double now);
};

// What an exception says; of one that is no Error: internal.
std::shared_ptr<const Error> current_error(std::string_view place);

}  // namespace mlxx::engine
