#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "mlxx/engine/active_request.h"
#include "mlxx/engine/decode_batch.h"
#include "mlxx/engine/engine.h"
#include "mlxx/engine/grammar_builder.h"
#include "mlxx/engine/prefill_pace.h"
#include "mlxx/engine/waiting_queue.h"

namespace mlxx::engine {

// One of the source's models, and what was learnt about it. The runner is held
// while it has requests.
struct ScheduledModel {
  std::shared_ptr<const ModelText> text;
  std::shared_ptr<Runner> runner;
  DecodeBatch batch;
  PrefillPace pace;
  int requests = 0;
  double computing_since = 0;  // the step in flight
  bool interrupted = false;    // something else was computed since then
  int failures = 0;            // of the runner, one after the other
  std::shared_ptr<const Error> failure;
};

// Decides what is computed next: which requests are let in, whose prompt goes
// on, which rows take a step. The engine's thread only; computes nothing by
// itself.
class Scheduler : private StepListener {
 public:
  struct Hooks {
    std::function<double()> now;  // seconds; of a steady clock
    // Called from another thread: run_once() has something to do again.
    std::function<void()> wake;
  };
  Scheduler(ModelSource& source, const EngineOptions& options, Hooks hooks);
  // Cancels what still runs.
  ~Scheduler() override;

  // Takes a request that passed check_request(). Ids grow.
  void add(uint64_t id, Request request, Sink sink, double submitted);
  void cancel(uint64_t id);
  void cancel_all();
  // The engine cannot go on.
  void fail_all(const std::shared_ptr<const Error>& error);

  // Lets in, computes at most one chunk's worth of prompts and one step of
  // each model. False if there is nothing to do before something comes (or
  // becomes due: call again within a second).
  bool run_once();

  size_t waiting() const {
    return queue_.size();
  }
  // Choices of the requests that were let in.
  int rows() const {
    return rows_;
  }
  // Requests that did not end.
  size_t size() const {
    return queue_.size() + active_.size();
  }
  // The device did something else since the last run_once().
  void interrupted();
  EngineStats stats() const;

 private:
  struct Waiting {
    Request request;
    Sink sink;
    double submitted;
  };

  void chosen(Sequence& sequence, Chosen chosen) override;
  void failed(Sequence& sequence, std::shared_ptr<const Error> error) override;

  // Letting in (scheduler_admission.cpp).
  void admit_waiting();
  bool admit_front();
  ScheduledModel& loaded(const std::shared_ptr<Runner>& runner);
  void activate(
      uint64_t id,
      Waiting waiting,
      ScheduledModel& model,
      std::unique_ptr<Lease> lease);
  void begin_answers(ActiveRequest& active);
  void refuse(
      const Waiting& waiting,
      FinishReason reason,
      std::shared_ptr<const Error> error);

  // Prompts (scheduler_prefill.cpp).
  bool prefill_some();
  ActiveRequest* next_to_prefill() const;
  double time_for_prompts() const;
  // The share of a chunk that is left after it; 0 for none.
  double prefill(ActiveRequest& request, double hold_seconds, double share);
  // Requests whose whole prompts go into one pass: `first`, and those like it
  // that fit.
  std::vector<ActiveRequest*>
  prompts_with(ActiveRequest& first, double hold_seconds, double share);
  double prefill_together(
      const std::vector<ActiveRequest*>& requests,
      double hold_seconds,
      double share);
  // Whether it is open now; it failed if not.
  bool try_open(ActiveRequest& request);
  void open(ActiveRequest& request);
  bool try_smaller_chunks(ActiveRequest& request, const Error& error);
  void prefilled(ActiveRequest& request);
  void start_if_ready(ActiveRequest& request);
  void start(ActiveRequest& request);

  bool step_models();
  void settle();
  void account(ScheduledModel& model, const DecodeBatch::Round& round);
  void sweep();
  void close(ActiveRequest& request, Sequence& sequence);
  void count(const ActiveRequest& request);
  void fail_request(ActiveRequest& request, std::shared_ptr<const Error> error);
  void runner_worked(ScheduledModel& model);
  void runner_failed(
      ScheduledModel& model,
      const std::shared_ptr<const Error>& error);
  void tick(bool stepped);

  ModelSource& source_;
  EngineOptions options_;
  Hooks hooks_;
  GrammarBuilder grammars_;
  WaitingQueue queue_;
  std::map<uint64_t, Waiting> waiting_;
  // In the order of their admission.
  std::vector<std::unique_ptr<ActiveRequest>> active_;
  std::map<const ModelText*, ScheduledModel> models_;
  int rows_ = 0;  // choices of active requests
  bool oldest_prompt_next_ = false;
  // The front of the queue does not fit until a request ends, or for a while.
  double full_until_ = 0;
  double last_tick_ = 0;
  EngineStats counters_;
};

}  // namespace mlxx::engine
