#include "mlxx/engine/engine.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <exception>
#include <future>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "mlxx/base/error.h"
#include "mlxx/base/log.h"
#include "mlxx/engine/request_checks.h"
#include "mlxx/engine/scheduler.h"

namespace mlxx::engine {

namespace {

using Clock = std::chrono::steady_clock;

// Of what is too much to be counted after each step.
constexpr auto kCountInterval = std::chrono::milliseconds(500);

double seconds_now() {
  return std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
}

void check_options(const EngineOptions& options) {
  auto at_least = [](int min, const char* name, int value) {
    if (value < min) {
      fail(
          ErrorKind::invalid_request,
          name,
          "must be at least {}, got {}",
          min,
          value);
    }
  };
  at_least(1, "max_rows", options.max_rows);
  at_least(0, "max_queue", options.max_queue);
  at_least(1, "prefill_step", options.prefill_step);
}

}  // namespace

struct Engine::Impl {
  struct Arrival {
    RequestId id;
    Request request;
    Sink sink;
    double submitted;
  };

  EngineOptions options;
  std::function<std::unique_ptr<ModelSource>()> make_source;

  mutable std::mutex mutex;
  std::condition_variable something;  // for the engine's thread
  std::condition_variable ended;      // a request, or the thread
  // Guarded by the mutex.
  std::vector<Arrival> arrivals;
  std::vector<RequestId> cancels;
  std::deque<std::function<void(ModelSource&)>> works;
  RequestId last_id = 0;
  int alive = 0;  // submitted and not ended
  int free_rows = 0;
  uint64_t refused = 0;
  bool woken = false;
  bool draining = false;
  bool cancel_everything = false;
  bool stopping = false;
  bool dead = false;  // the thread ended by an exception
  EngineStats published;
  std::thread thread;

  void run(std::promise<void> started);
  void serve(ModelSource& source);
  bool take_in(ModelSource& source, Scheduler& scheduler, bool wait);
  void give_up(const std::shared_ptr<const Error>& error);
  int retry_after() const;
};

Engine::Engine(
    const EngineOptions& options,
    std::function<std::unique_ptr<ModelSource>()> make_source)
    : impl_(std::make_unique<Impl>()) {
  check_options(options);
  impl_->options = options;
  impl_->free_rows = options.max_rows;
  impl_->make_source = std::move(make_source);
  std::promise<void> started;
  auto future = started.get_future();
  impl_->thread =
      std::thread([impl = impl_.get(), promise = std::move(started)]() mutable {
        impl->run(std::move(promise));
      });
  try {
    future.get();
  } catch (...) {
    impl_->thread.join();
    throw;
  }
}

Engine::~Engine() {
  {
    std::lock_guard lock(impl_->mutex);
    impl_->draining = true;
    impl_->stopping = true;
    impl_->woken = true;
  }
  impl_->something.notify_all();
  if (impl_->thread.joinable()) {
    impl_->thread.join();
  }
}

RequestId Engine::submit(Request request, Sink sink) {
  check_request(request, impl_->options.max_rows);
  double now = seconds_now();
  RequestId id = 0;
  {
    std::lock_guard lock(impl_->mutex);
    if (impl_->draining || impl_->dead) {
      ++impl_->refused;
      throw Busy(
          impl_->dead ? "[engine] the engine has failed"
                      : "[engine] the engine is stopping",
          impl_->retry_after(),
          /*queue_full=*/false);
    }
    size_t waiting =
        impl_->arrivals.size() + static_cast<size_t>(impl_->published.waiting);
    // Those for whom there is a place are only passing through.
    size_t room = static_cast<size_t>(impl_->options.max_queue) +
        static_cast<size_t>(impl_->free_rows);
    if (waiting >= room) {
      ++impl_->refused;
      throw Busy(
          fmt::format("[engine] {} requests wait already", waiting),
          impl_->retry_after(),
          /*queue_full=*/true);
    }
    id = ++impl_->last_id;
    impl_->arrivals.push_back({id, std::move(request), std::move(sink), now});
    impl_->woken = true;
  }
  impl_->something.notify_all();
  return id;
}

void Engine::cancel(RequestId id) {
  {
    std::lock_guard lock(impl_->mutex);
    impl_->cancels.push_back(id);
    impl_->woken = true;
  }
  impl_->something.notify_all();
}

void Engine::post(std::function<void(ModelSource&)> work) {
  {
    std::lock_guard lock(impl_->mutex);
    if (impl_->stopping || impl_->dead) {
      throw Busy(
          impl_->dead ? "[engine] the engine has failed"
                      : "[engine] the engine is stopping",
          impl_->retry_after(),
          /*queue_full=*/false);
    }
    impl_->works.push_back(std::move(work));
    impl_->woken = true;
  }
  impl_->something.notify_all();
}

EngineStats Engine::stats() const {
  std::lock_guard lock(impl_->mutex);
  EngineStats stats = impl_->published;
  stats.waiting += static_cast<int>(impl_->arrivals.size());
  stats.refused = impl_->refused;
  return stats;
}

void Engine::drain(std::chrono::milliseconds patience) {
  std::unique_lock lock(impl_->mutex);
  impl_->draining = true;
  auto done = [&] {
    return (impl_->alive == 0 && impl_->arrivals.empty()) || impl_->dead;
  };
  if (impl_->ended.wait_for(lock, patience, done)) {
    return;
  }
  impl_->cancel_everything = true;
  impl_->woken = true;
  impl_->something.notify_all();
  impl_->ended.wait(lock, done);
}

// Seconds until those who wait now had their turn, as requests went so far.
// The mutex is held.
int Engine::Impl::retry_after() const {
  uint64_t ended = published.finished + published.failed + published.cancelled;
  double each = ended == 0
      ? 1
      : (published.step_seconds + published.prefill_seconds) /
          static_cast<double>(ended);
  double waiting = published.waiting + static_cast<double>(arrivals.size());
  return static_cast<int>(std::clamp(waiting * each, 1.0, 60.0));
}

void Engine::Impl::run(std::promise<void> started) {
  std::unique_ptr<ModelSource> source;
  try {
    source = make_source();
    if (!source) {
      fail(ErrorKind::internal, "engine", "there is no source of models");
    }
  } catch (...) {
    started.set_exception(std::current_exception());
    return;
  }
  started.set_value();
  serve(*source);
}

void Engine::Impl::serve(ModelSource& source) {
  Scheduler scheduler(source, options, {seconds_now, [this] {
                                          {
                                            std::lock_guard lock(mutex);
                                            woken = true;
                                          }
                                          something.notify_all();
                                        }});
  try {
    bool worked = true;
    SourceStats source_stats = source.source_stats();
    Clock::time_point counted = Clock::now();
    while (take_in(source, scheduler, /*wait=*/!worked)) {
      worked = scheduler.run_once();
      EngineStats stats = scheduler.stats();
      if (!worked || Clock::now() - counted > kCountInterval) {
        source_stats = source.source_stats();
        counted = Clock::now();
      }
      stats.source = source_stats;
      std::lock_guard lock(mutex);
      published = std::move(stats);
      alive = static_cast<int>(scheduler.size());
      free_rows = options.max_rows - scheduler.rows();
      if (alive == 0) {
        ended.notify_all();
      }
    }
    scheduler.cancel_all();
    std::deque<std::function<void(ModelSource&)>> dropped;
    std::lock_guard lock(mutex);
    dropped.swap(works);
  } catch (...) {
    auto error = current_error("engine");
    scheduler.fail_all(error);
    give_up(error);
  }
}

// False once the engine stops.
bool Engine::Impl::take_in(
    ModelSource& source,
    Scheduler& scheduler,
    bool wait) {
  std::vector<Arrival> come;
  std::vector<RequestId> gone;
  std::deque<std::function<void(ModelSource&)>> due;
  bool cancel_all = false;
  bool stop = false;
  {
    std::unique_lock lock(mutex);
    if (wait) {
      something.wait_for(lock, std::chrono::seconds(1), [&] { return woken; });
    }
    woken = false;
    come.swap(arrivals);
    gone.swap(cancels);
    cancel_all = std::exchange(cancel_everything, false);
    stop = stopping;
    alive += static_cast<int>(come.size());
    published.waiting += static_cast<int>(come.size());
    if (!works.empty()) {
      due.push_back(std::move(works.front()));
      works.pop_front();
      woken = !works.empty();  // one between two steps
    }
  }
  for (Arrival& arrival : come) {
    scheduler.add(
        arrival.id,
        std::move(arrival.request),
        std::move(arrival.sink),
        arrival.submitted);
  }
  for (RequestId id : gone) {
    scheduler.cancel(id);
  }
  if (cancel_all) {
    scheduler.cancel_all();
  }
  if (stop) {
    return false;
  }
  for (auto& work : due) {
    try {
      work(source);
    } catch (...) {
      log_warning("{}", current_error("engine")->what());
    }
    scheduler.interrupted();
  }
  return true;
}

// The thread cannot go on: nobody is left waiting.
void Engine::Impl::give_up(const std::shared_ptr<const Error>& error) {
  std::vector<Arrival> come;
  {
    std::lock_guard lock(mutex);
    dead = true;
    come.swap(arrivals);
    works.clear();
    alive = 0;
    published.waiting = 0;
    published.prefilling = 0;
    published.decoding = 0;
    published.healthy = false;
    published.problem = error->what();
  }
  for (Arrival& arrival : come) {
    for (int i = 0; i < arrival.request.n; ++i) {
      Event event;
      event.choice = i;
      event.finish = Finish{FinishReason::error, {}, {}, error};
      arrival.sink(std::move(event));
    }
  }
  ended.notify_all();
}

}  // namespace mlxx::engine
