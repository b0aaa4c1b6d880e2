#include "mlxx/engine/scheduler.h"

#include <algorithm>
#include <utility>

#include "mlxx/base/error.h"
#include "mlxx/base/log.h"

namespace mlxx::engine {

namespace {

// Failures of a runner without a success between, after which the engine is
// not healthy.
constexpr int kFailuresOfBroken = 3;
constexpr double kTickSeconds = 1;

}  // namespace

Scheduler::Scheduler(
    ModelSource& source,
    const EngineOptions& options,
    Hooks hooks)
    : source_(source),
      options_(options),
      hooks_(std::move(hooks)),
      grammars_(hooks_.wake) {}

Scheduler::~Scheduler() {
  try {
    cancel_all();
    while (!active_.empty()) {
      step_models();
      sweep();
    }
  } catch (...) {
    // Rows go before their runners.
    active_.clear();
  }
}

void Scheduler::add(uint64_t id, Request request, Sink sink, double submitted) {
  queue_.push({id, request.priority, request.tenant});
  waiting_.emplace(id, Waiting{std::move(request), std::move(sink), submitted});
}

void Scheduler::cancel(uint64_t id) {
  auto found = waiting_.find(id);
  if (found != waiting_.end()) {
    Waiting waiting = std::move(found->second);
    waiting_.erase(found);
    queue_.remove(id);
    full_until_ = 0;  // another one may be the front now
    refuse(waiting, FinishReason::cancelled, nullptr);
    return;
  }
  for (auto& request : active_) {
    if (request->id == id) {
      request->finish_all(FinishReason::cancelled, nullptr, hooks_.now());
    }
  }
}

void Scheduler::cancel_all() {
  for (uint64_t id : queue_.ids()) {
    cancel(id);
  }
  for (auto& request : active_) {
    request->finish_all(FinishReason::cancelled, nullptr, hooks_.now());
  }
}

void Scheduler::fail_all(const std::shared_ptr<const Error>& error) {
  for (uint64_t id : queue_.ids()) {
    auto found = waiting_.find(id);
    queue_.remove(id);
    if (found != waiting_.end()) {
      refuse(found->second, FinishReason::error, error);
      waiting_.erase(found);
    }
  }
  for (auto& request : active_) {
    fail_request(*request, error);
  }
}

void Scheduler::interrupted() {
  for (auto& [text, model] : models_) {
    model.interrupted = true;
  }
}

bool Scheduler::run_once() {
  for (auto& request : active_) {
    start_if_ready(*request);
  }
  admit_waiting();
  bool worked = prefill_some();
  bool stepped = step_models();
  size_t before = active_.size();
  sweep();
  tick(stepped);
  return worked || stepped || active_.size() != before;
}

bool Scheduler::step_models() {
  bool stepped = false;
  for (auto& [text, model] : models_) {
    if (!model.batch.busy()) {
      continue;
    }
    stepped = true;
    if (!model.batch.is_in_flight()) {
      model.computing_since = hooks_.now();
      model.interrupted = false;
    }
    account(model, model.batch.advance(*model.runner, *this));
  }
  return stepped;
}

// Reads every step in flight.
void Scheduler::settle() {
  for (auto& [text, model] : models_) {
    if (model.batch.is_in_flight()) {
      account(model, model.batch.settle(*model.runner, *this));
    }
  }
}

void Scheduler::account(
    ScheduledModel& model,
    const DecodeBatch::Round& round) {
  model.batch.drop_finished();
  if (round.error) {
    runner_failed(model, round.error);
  }
  if (round.read_rows == 0) {
    return;
  }
  if (!round.error) {
    runner_worked(model);
  }
  double now = hooks_.now();
  double seconds = now - model.computing_since;
  ++counters_.steps;
  counters_.step_seconds += seconds;
  if (!model.interrupted) {
    model.pace.decoded(seconds, round.read_rows);
  }
  // The next one, if it was begun, waited for this one.
  model.computing_since = now;
  model.interrupted = false;
}

void Scheduler::chosen(Sequence& sequence, Chosen chosen) {
  ActiveRequest& request = sequence.request;
  ++counters_.generated_tokens;
  queue_.charge(request.request.tenant, 1);
  if (!request.request.top_logprobs) {
    chosen.token.logprob = 0;
    chosen.token.top.clear();
  }
  Event event;
  try {
    event = sequence.answer.take(std::move(chosen.token));
  } catch (...) {
    failed(sequence, current_error("answer"));
    return;
  }
  request.send(sequence, std::move(event), hooks_.now());
}

void Scheduler::failed(Sequence& sequence, std::shared_ptr<const Error> error) {
  sequence.request.send(
      sequence,
      sequence.answer.finish(FinishReason::error, std::move(error)),
      hooks_.now());
}

void Scheduler::fail_request(
    ActiveRequest& request,
    std::shared_ptr<const Error> error) {
  for (auto& choice : request.choices) {
    choice->damaged = true;
  }
  request.finish_all(FinishReason::error, std::move(error), hooks_.now());
}

// Closes what ended, and lets go of what nobody needs.
void Scheduler::sweep() {
  size_t before = active_.size();
  for (auto& request : active_) {
    if (request->sink_failed) {
      request->finish_all(FinishReason::cancelled, nullptr, hooks_.now());
    }
    for (auto& choice : request->choices) {
      if (choice->row && choice->answer.finished() && choice->unread == 0) {
        close(*request, *choice);
      }
    }
  }
  for (auto& [text, model] : models_) {
    model.batch.drop_finished();
  }
  std::erase_if(active_, [&](const auto& request) {
    bool ended = std::all_of(
        request->choices.begin(),
        request->choices.end(),
        [](const auto& c) { return c->answer.finished() && !c->row; });
    if (ended) {
      count(*request);
      rows_ -= request->request.n;
      if (--request->model->requests == 0) {
        request->model->runner.reset();
      }
    }
    return ended;
  });
  if (active_.size() != before) {
    full_until_ = 0;
  }
}

void Scheduler::close(ActiveRequest& request, Sequence& sequence) {
  const auto& prompt = request.request.prompt;
  const auto& answer = sequence.answer.tokens();
  std::vector<int32_t> tokens;
  if (!sequence.damaged) {
    bool whole = request.stage == ActiveRequest::Stage::decoding;
    size_t known = whole ? prompt.size() : request.computed();
    tokens.assign(
        prompt.begin(),
        prompt.begin() + static_cast<std::ptrdiff_t>(known));
    tokens.insert(tokens.end(), answer.begin(), answer.end());
  }
  try {
    request.model->runner->close(std::move(sequence.row), tokens);
  } catch (...) {
    log_warning("{}", current_error("close")->what());
  }
  sequence.row.reset();
}

void Scheduler::count(const ActiveRequest& request) {
  if (request.had_error) {
    ++counters_.failed;
  } else if (request.was_cancelled) {
    ++counters_.cancelled;
  } else {
    ++counters_.finished;
  }
}

void Scheduler::runner_worked(ScheduledModel& model) {
  model.failures = 0;
  model.failure.reset();
}

void Scheduler::runner_failed(
    ScheduledModel& model,
    const std::shared_ptr<const Error>& error) {
  // What the request asked for, or a lack of room, is no fault of the runner.
  if (error->kind() == ErrorKind::internal) {
    ++model.failures;
    model.failure = error;
  }
}

void Scheduler::tick(bool stepped) {
  double now = hooks_.now();
  if (!stepped && now - last_tick_ < kTickSeconds) {
    return;
  }
  last_tick_ = now;
  try {
    source_.tick();
  } catch (...) {
    log_warning("{}", current_error("engine")->what());
  }
}

EngineStats Scheduler::stats() const {
  EngineStats stats = counters_;
  stats.waiting = static_cast<int>(queue_.size());
  for (const auto& request : active_) {
    if (request->stage != ActiveRequest::Stage::decoding) {
      ++stats.prefilling;
    }
  }
  for (const auto& [text, model] : models_) {
    stats.decoding += model.batch.rows();
    if (model.failures >= kFailuresOfBroken) {
      stats.healthy = false;
      stats.problem = model.failure->what();
    }
  }
  return stats;
}

}  // namespace mlxx::engine
