#include <algorithm>
#include <limits>
#include <utility>

#include "mlxx/engine/scheduler.h"

// Prompts: whose goes on, and by how much between two decode steps.
namespace mlxx::engine {

namespace {

// Stands for a step that was not timed yet.
constexpr double kUnknownStepSeconds = 0.02;
// How long a chunk holds decode steps up, in steps' times. Well under one,
// since a chunk is a quarter longer at times: nobody waits twice as long for a
// token. More for many prompts' sake only where steps are so short that it
// isn't felt.
constexpr double kLeastSteps = 0.6;
constexpr double kMostSteps = 2;
constexpr double kUnfeltSeconds = 0.015;
constexpr int kMinChunkLimit = 16;
// Rows that share a pass of their prompts.
constexpr size_t kMostTogether = 64;
// Prompts that begin with so many equal tokens: the second had better wait for
// what the first leaves in the prefix cache.
constexpr size_t kSharedTokens = 64;

bool begin_alike(const ActiveRequest& a, const ActiveRequest& b) {
  const auto& x = a.request.prompt;
  const auto& y = b.request.prompt;
  size_t from = a.computed();
  size_t to = from + kSharedTokens;
  return x.size() > to && y.size() > to &&
      std::equal(x.begin(), x.begin() + static_cast<ptrdiff_t>(to), y.begin());
}

}  // namespace

// Seconds that a chunk may hold up those who decode; 0: nobody does. Less than
// a step's time; more if steps are short and more requests wait for their
// prompts than decode, so that each has as much of the machine as any other.
double Scheduler::time_for_prompts() const {
  double longest = 0;
  int decoding = 0;
  for (const auto& [text, model] : models_) {
    longest = std::max(
        longest,
        model.batch.rows() > 0 ? model.pace.step_seconds() : 0);
    decoding += model.batch.rows();
  }
  if (decoding == 0 || longest == 0) {
    return decoding == 0 ? 0 : kUnknownStepSeconds;
  }
  auto prompts =
      std::count_if(active_.begin(), active_.end(), [](const auto& request) {
        return request->stage == ActiveRequest::Stage::prefilling;
      });
  double ratio = static_cast<double>(prompts) / decoding;
  double most = std::max(longest * kLeastSteps, kUnfeltSeconds);
  return std::min(longest * std::clamp(ratio, kLeastSteps, kMostSteps), most);
}

// The shortest prompt, so that a long one does not hold up many; every second
// time the oldest, so that many short ones do not hold up a long one for ever.
ActiveRequest* Scheduler::next_to_prefill() const {
  auto before = [&](const ActiveRequest& a, const ActiveRequest& b) {
    if (a.request.priority != b.request.priority) {
      return a.request.priority > b.request.priority;
    }
    return a.prompt_left < b.prompt_left;
  };
  ActiveRequest* next = nullptr;
  for (const auto& request : active_) {
    if (request->stage != ActiveRequest::Stage::prefilling ||
        request->finished()) {
      continue;
    }
    if (!next) {
      next = request.get();
      if (oldest_prompt_next_) {
        break;
      }
    } else if (before(*request, *next)) {
      next = request.get();
    }
  }
  return next;
}

bool Scheduler::prefill_some() {
  ActiveRequest* request = next_to_prefill();
  if (!request) {
    return false;
  }
  settle();
  double hold_seconds = time_for_prompts();
  double share = 1;
  while (request && share > 0) {
    auto together = prompts_with(*request, hold_seconds, share);
    share = together.size() > 1
        ? prefill_together(together, hold_seconds, share)
        : prefill(*request, hold_seconds, share);
    oldest_prompt_next_ = !oldest_prompt_next_;
    // Whoever decodes first should not wait for the others' prompts.
    if (hold_seconds == 0 && time_for_prompts() > 0) {
      break;
    }
    request = next_to_prefill();
  }
  return true;
}

std::vector<ActiveRequest*> Scheduler::prompts_with(
    ActiveRequest& first,
    double hold_seconds,
    double share) {
  std::vector<ActiveRequest*> chosen{&first};
  ScheduledModel& model = *first.model;
  if (!model.runner->joins_prompts() || first.chunk_limit > 0 ||
      !try_open(first) || first.prompt_left == 0) {
    return chosen;
  }
  int room =
      model.pace.chunk(std::numeric_limits<int>::max(), hold_seconds, share);
  int longest = first.prompt_left;
  std::vector<ActiveRequest*> others;
  for (const auto& request : active_) {
    if (request.get() != &first && request->model == &model &&
        request->stage == ActiveRequest::Stage::prefilling &&
        request->request.priority == first.request.priority &&
        request->chunk_limit == 0 && !request->finished()) {
      others.push_back(request.get());
    }
  }
  std::ranges::stable_sort(others, {}, &ActiveRequest::prompt_left);
  for (ActiveRequest* other : others) {
    int rows = static_cast<int>(chosen.size()) + 1;
    if (chosen.size() == kMostTogether || longest > room / rows) {
      break;
    }
    bool alike = std::ranges::any_of(chosen, [&](const ActiveRequest* one) {
      return begin_alike(*one, *other);
    });
    if (alike || !try_open(*other) || other->prompt_left == 0 ||
        other->computed() != first.computed()) {
      continue;
    }
    if (std::max(longest, other->prompt_left) <= room / rows) {
      longest = std::max(longest, other->prompt_left);
      chosen.push_back(other);
    }
  }
  return chosen;
}

double Scheduler::prefill_together(
    const std::vector<ActiveRequest*>& requests,
    double hold_seconds,
    double share) {
  ScheduledModel& model = *requests.front()->model;
  std::vector<Row*> rows;
  int done = 0;
  for (ActiveRequest* request : requests) {
    rows.push_back(request->choices[0]->row.get());
    done += request->prompt_left;
  }
  try {
    double began = hooks_.now();
    if (!model.runner->prefill_together(rows)) {
      return prefill(*requests.front(), hold_seconds, share);
    }
    double seconds = hooks_.now() - began;
    model.pace.prefilled(done, seconds);
    share -= model.pace.share_of(done, hold_seconds);
    counters_.prefill_seconds += seconds;
  } catch (...) {
    auto error = current_error("prefill");
    bool failed = false;
    for (ActiveRequest* request : requests) {
      if (!try_smaller_chunks(*request, *error)) {
        failed = true;
        fail_request(*request, error);
      }
    }
    if (failed) {
      runner_failed(model, error);
    }
    return share;
  }
  for (ActiveRequest* request : requests) {
    try {
      queue_.charge(
          request->request.tenant,
          static_cast<uint64_t>(request->prompt_left));
      request->prompt_left = 0;
      prefilled(*request);
    } catch (...) {
      auto error = current_error("prefill");
      runner_failed(model, error);
      fail_request(*request, error);
    }
  }
  return share;
}

bool Scheduler::try_open(ActiveRequest& request) {
  try {
    if (!request.opened) {
      open(request);
    }
    return true;
  } catch (...) {
    auto error = current_error("prefill");
    runner_failed(*request.model, error);
    fail_request(request, error);
    return false;
  }
}

double
Scheduler::prefill(ActiveRequest& request, double hold_seconds, double share) {
  if (request.finished()) {
    return share;
  }
  ScheduledModel& model = *request.model;
  try {
    if (!request.opened) {
      open(request);
    }
    if (request.prompt_left > 0) {
      int chunk = model.pace.chunk(request.prompt_left, hold_seconds, share);
      if (chunk == 0) {
        return 0;
      }
      if (request.chunk_limit > 0) {
        chunk = std::min(chunk, request.chunk_limit);
      }
      double began = hooks_.now();
      int before = request.prompt_left;
      request.prompt_left =
          model.runner->prefill(*request.choices[0]->row, chunk);
      double seconds = hooks_.now() - began;
      int done = before - request.prompt_left;
      if (done <= 0) {
        fail(
            ErrorKind::internal,
            "prefill",
            "{} tokens of the prompt are left after a chunk, {} before it",
            request.prompt_left,
            before);
      }
      model.pace.prefilled(done, seconds);
      share -= model.pace.share_of(done, hold_seconds);
      counters_.prefill_seconds += seconds;
      queue_.charge(request.request.tenant, static_cast<uint64_t>(done));
    }
    if (request.prompt_left == 0) {
      prefilled(request);
    }
  } catch (...) {
    auto error = current_error("prefill");
    if (try_smaller_chunks(request, *error)) {
      return share;
    }
    runner_failed(model, error);
    fail_request(request, error);
  }
  return share;
}

// Memory was planned for, but the device may have less than it said: once, the
// prompt begins anew by a quarter of the chunks.
bool Scheduler::try_smaller_chunks(ActiveRequest& request, const Error& error) {
  if (error.kind() != ErrorKind::out_of_memory || request.chunk_limit > 0 ||
      request.prompt_left == 0) {
    return false;
  }
  Sequence& first = *request.choices[0];
  if (first.row) {
    first.damaged = true;
    close(request, first);
    first.damaged = false;
  }
  request.opened = false;
  request.prompt_left = static_cast<int>(request.request.prompt.size()) - 1;
  request.chunk_limit = std::max(kMinChunkLimit, options_.prefill_step / 4);
  return true;
}

void Scheduler::open(ActiveRequest& request) {
  Sequence& first = *request.choices[0];
  auto opened =
      request.model->runner->open(request.request.prompt, request.settings(0));
  first.row = std::move(opened.row);
  request.opened = true;
  int all = static_cast<int>(request.request.prompt.size()) - 1;
  if (opened.cached_tokens < 0 || opened.cached_tokens > all) {
    fail(
        ErrorKind::internal,
        "prefix_cache",
        "{} tokens of a prompt of {} are said to be known",
        opened.cached_tokens,
        all + 1);
  }
  request.prompt_left = all - opened.cached_tokens;
  for (auto& choice : request.choices) {
    choice->answer.usage.cached_tokens = opened.cached_tokens;
  }
  if (request.chunk_limit == 0) {
    counters_.prompt_tokens += request.request.prompt.size();
    counters_.cached_tokens += static_cast<uint64_t>(opened.cached_tokens);
  }
}

// All of its prompt is computed: the other choices share it.
void Scheduler::prefilled(ActiveRequest& request) {
  for (size_t i = 1; i < request.choices.size(); ++i) {
    request.choices[i]->row = request.model->runner->fork(
        *request.choices[0]->row,
        request.settings(static_cast<int>(i)));
  }
  request.stage = ActiveRequest::Stage::prefilled;
  start_if_ready(request);
}

void Scheduler::start_if_ready(ActiveRequest& request) {
  if (request.stage != ActiveRequest::Stage::prefilled || request.finished()) {
    return;
  }
  if (!request.grammar.valid()) {
    start(request);
    return;
  }
  if (request.grammar.wait_for(std::chrono::seconds(0)) !=
      std::future_status::ready) {
    return;
  }
  try {
    BuiltGrammar grammar = request.grammar.get();
    for (auto& choice : request.choices) {
      choice->answer.follow(grammar.matcher.clone(), grammar.mask_words);
    }
  } catch (...) {
    fail_request(request, current_error("constraint"));
    return;
  }
  start(request);
}

void Scheduler::start(ActiveRequest& request) {
  request.stage = ActiveRequest::Stage::decoding;
  request.started = hooks_.now();
  for (auto& choice : request.choices) {
    request.model->batch.join(*choice);
  }
}

}  // namespace mlxx::engine
