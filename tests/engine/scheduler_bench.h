#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "mlxx/engine/request_checks.h"
#include "mlxx/engine/scheduler.h"
#include "tests/engine/fake_runner.h"

namespace mlxx::engine {

// What came of one choice.
struct Got {
  std::string text;
  std::vector<AnswerToken> tokens;
  std::vector<AnswerToken> prompt;
  std::optional<Finish> finish;
  int events = 0;

  FinishReason reason() const {
    if (!finish) {
      ADD_FAILURE() << "it has no finish";
      return FinishReason::error;
    }
    return finish->reason;
  }
  std::string error() const {
    return finish && finish->error ? finish->error->what() : "";
  }
  std::vector<int32_t> ids() const {
    std::vector<int32_t> ids;
    for (const AnswerToken& token : tokens) {
      ids.push_back(token.token);
    }
    return ids;
  }
};

inline void take(Got& got, Event event) {
  EXPECT_FALSE(got.finish) << "an event after the finish";
  ++got.events;
  got.text += event.text;
  got.tokens.insert(got.tokens.end(), event.tokens.begin(), event.tokens.end());
  if (!event.prompt.empty()) {
    EXPECT_TRUE(got.tokens.empty());
    got.prompt = event.prompt;
  }
  if (event.finish) {
    got.finish = event.finish;
  }
}

inline Request make_request(const std::string& prompt, int max_tokens = 1000) {
  Request request;
  request.model = "m";
  request.prompt = bytes(prompt);
  request.max_tokens = max_tokens;
  request.sampling.seed = 7;
  return request;
}

// A scheduler without threads, on a clock that only computing moves.
class Bench {
 public:
  explicit Bench(EngineOptions engine_options = {}) : options(engine_options) {
    runner = std::make_shared<FakeRunner>("m", &clock);
    source.runners["m"] = runner;
    start();
  }
  ~Bench() {
    scheduler.reset();
  }

  void start() {
    scheduler = std::make_unique<Scheduler>(
        source,
        options,
        Scheduler::Hooks{[this] { return clock.now(); }, [] {}});
  }

  uint64_t submit(Request request) {
    check_request(request, options.max_rows);
    uint64_t id = ++last_id;
    scheduler->add(
        id,
        std::move(request),
        [this, id](Event event) {
          if (event.finish) {
            finished_order.push_back(id);
          }
          if (!event.tokens.empty()) {
            token_order.push_back(id);
          }
          take(got[{id, event.choice}], std::move(event));
        },
        clock.now());
    return id;
  }

  void run() {
    for (int round = 0; scheduler->size() > 0; ++round) {
      ASSERT_LT(round, 200000) << "the scheduler does not come to an end";
      if (!scheduler->run_once()) {
        // A grammar is being made.
        std::this_thread::sleep_for(std::chrono::microseconds(20));
      }
    }
  }
  void run_rounds(int rounds) {
    for (int i = 0; i < rounds; ++i) {
      scheduler->run_once();
    }
  }

  const Got& of(uint64_t id, int choice = 0) {
    return got[{id, choice}];
  }

  FakeClock clock;
  FakeSource source;
  std::shared_ptr<FakeRunner> runner;
  EngineOptions options;
  std::map<std::pair<uint64_t, int>, Got> got;
  std::vector<uint64_t> finished_order;
  std::vector<uint64_t> token_order;  // who got the tokens, one after the other
  uint64_t last_id = 0;
  std::unique_ptr<Scheduler> scheduler;
};

// The calls without those whose first word is in `without`.
inline std::vector<std::string> calls_but(
    const std::vector<std::string>& calls,
    const std::vector<std::string>& without) {
  std::vector<std::string> kept;
  for (const std::string& call : calls) {
    std::string word = call.substr(0, call.find(' '));
    if (std::find(without.begin(), without.end(), word) == without.end()) {
      kept.push_back(call);
    }
  }
  return kept;
}

}  // namespace mlxx::engine
