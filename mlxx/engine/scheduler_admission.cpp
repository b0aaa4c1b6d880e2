#include <utility>

#include "mlxx/base/error.h"
#include "mlxx/engine/request_checks.h"
#include "mlxx/engine/scheduler.h"

// Letting requests in: the front of the queue waits until it fits, and nobody
// overtakes it for being smaller.
namespace mlxx::engine {

namespace {

// How often to ask again whether a request fits, if none ended meanwhile.
constexpr double kAskAgainSeconds = 0.1;
// Models that nobody holds, of which something is remembered.
constexpr size_t kMaxModels = 64;

}  // namespace

void Scheduler::admit_waiting() {
  while (admit_front()) {
  }
}

// False if the front has to wait, or there is none.
bool Scheduler::admit_front() {
  auto front = queue_.front();
  if (!front || (hooks_.now() < full_until_ && !active_.empty())) {
    return false;
  }
  auto found = waiting_.find(front->id);
  Request& request = found->second.request;
  if (rows_ + request.n > options_.max_rows) {
    return false;
  }
  bool alone = active_.empty();
  ScheduledModel* model = nullptr;
  std::unique_ptr<Lease> lease;
  try {
    auto runner = source_.runner(request.model);
    check_for_model(request, *runner->text(), runner->vocab_size());
    request.max_tokens = tokens_to_generate(request, *runner->text());
    lease = source_.admit(*runner, request, alone);
    if (!lease && alone) {
      fail(
          ErrorKind::out_of_memory,
          "memory_admission",
          "no room for a prompt of {} tokens and {} more, although nothing "
          "else runs",
          request.prompt.size(),
          request.max_tokens);
    }
    model = &loaded(runner);
  } catch (...) {
    auto error = current_error("admission");
    // A model that does not fit may do so once nobody holds the others.
    if (error->kind() != ErrorKind::out_of_memory || alone || lease ||
        std::string_view(error->what()).starts_with("[memory_admission]")) {
      Waiting waiting = std::move(found->second);
      waiting_.erase(found);
      queue_.pop();
      refuse(waiting, FinishReason::error, error);
      return true;
    }
  }
  if (!lease) {
    full_until_ = hooks_.now() + kAskAgainSeconds;
    return false;
  }
  Waiting waiting = std::move(found->second);
  waiting_.erase(found);
  queue_.pop();
  activate(front->id, std::move(waiting), *model, std::move(lease));
  return true;
}

ScheduledModel& Scheduler::loaded(const std::shared_ptr<Runner>& runner) {
  auto text = runner->text();
  auto found = models_.find(text.get());
  if (found == models_.end()) {
    // Those that are only remembered here go; so do all, if they are many.
    bool many = models_.size() >= kMaxModels;
    std::erase_if(models_, [&](const auto& entry) {
      const ScheduledModel& model = entry.second;
      return model.requests == 0 && (many || model.text.use_count() == 1);
    });
    ScheduledModel model{
        .text = text,
        .runner = nullptr,
        .batch = {},
        .pace = PrefillPace(options_.prefill_step, runner->least_chunk()),
        .failure = nullptr};
    found = models_.emplace(text.get(), std::move(model)).first;
  }
  found->second.runner = runner;
  return found->second;
}

void Scheduler::activate(
    uint64_t id,
    Waiting waiting,
    ScheduledModel& model,
    std::unique_ptr<Lease> lease) {
  auto active = std::make_unique<ActiveRequest>();
  active->id = id;
  active->submitted = waiting.submitted;
  active->admitted = hooks_.now();
  active->model = &model;
  active->lease = std::move(lease);
  try {
    const Request& request = waiting.request;
    for (int i = 0; i < request.n; ++i) {
      active->choices.push_back(std::make_unique<Sequence>(Sequence{
          *active,
          Answer(
              request,
              *model.text,
              model.runner->vocab_size(),
              request.max_tokens,
              i),
          nullptr}));
    }
    active->seed = generate::resolve_seed(request.sampling);
    if (request.constraint && request.max_tokens > 0) {
      active->grammar = grammars_.build(model.text, *request.constraint);
    }
  } catch (...) {
    auto error = current_error("admission");
    active.reset();
    refuse(waiting, FinishReason::error, error);
    return;
  }
  active->prompt_left = static_cast<int>(waiting.request.prompt.size()) - 1;
  active->request = std::move(waiting.request);
  active->sink = std::move(waiting.sink);
  rows_ += active->request.n;
  ++model.requests;
  active_.push_back(std::move(active));
  begin_answers(*active_.back());
}

// What comes before the first token, or instead of it.
void Scheduler::begin_answers(ActiveRequest& active) {
  const Request& request = active.request;
  if (request.echo_logprobs) {
    try {
      auto prompt = active.model->runner->prompt_logprobs(
          request.prompt,
          request.top_logprobs.value_or(0),
          request.adapter);
      for (auto& choice : active.choices) {
        Event event;
        event.choice = choice->answer.choice();
        event.prompt = prompt;
        active.send(*choice, std::move(event), hooks_.now());
      }
    } catch (...) {
      auto error = current_error("prompt_logprobs");
      runner_failed(*active.model, error);
      fail_request(active, error);
      return;
    }
  }
  if (request.max_tokens == 0) {
    active.finish_all(FinishReason::length, nullptr, hooks_.now());
  }
}

// Ends a request that has no rows.
void Scheduler::refuse(
    const Waiting& waiting,
    FinishReason reason,
    std::shared_ptr<const Error> error) {
  Usage usage;
  usage.prompt_tokens = static_cast<int>(waiting.request.prompt.size());
  usage.queue_seconds = hooks_.now() - waiting.submitted;
  for (int i = 0; i < waiting.request.n; ++i) {
    Event event;
    event.choice = i;
    event.finish = Finish{reason, {}, usage, error};
    try {
      waiting.sink(std::move(event));
    } catch (...) {
      break;  // it gets nothing more
    }
  }
  uint64_t& counter = reason == FinishReason::cancelled ? counters_.cancelled
                                                        : counters_.failed;
  ++counter;
}

}  // namespace mlxx::engine
