#include "mlxx/capi/mlx_thread.h"

#include <future>
#include <memory>
#include <utility>

#include <unistd.h>

#include "mlxx/base/error.h"

namespace mlxx::capi {

namespace {

// A C function has no other place to know who called it from.
int& callback_depth() {
  thread_local int depth = 0;
  return depth;
}

}  // namespace

MlxThread::MlxThread() : process_(getpid()), thread_([this] { work(); }) {}

MlxThread::~MlxThread() {
  {
    std::lock_guard lock(mutex_);
    is_ending_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void MlxThread::post(std::function<void()> job) {
  if (getpid() != process_) {
    fail(
        ErrorKind::unsupported,
        "mlxx",
        "this process was forked from one that already used models: use them "
        "in one of the two, or start a new program");
  }
  {
    std::lock_guard lock(mutex_);
    jobs_.push_back(std::move(job));
  }
  changed_.notify_one();
}

void MlxThread::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return is_ending_ || !jobs_.empty(); });
    if (jobs_.empty()) {
      return;
    }
    auto job = std::move(jobs_.front());
    jobs_.pop_front();
    lock.unlock();
    job();
    job = nullptr;
    lock.lock();
  }
}

MlxThread& mlx_thread() {
  static auto* thread = std::make_unique<MlxThread>().release();
  return *thread;
}

void run_on_mlx_thread(const std::function<void()>& job) {
  // Shared: set_value() may still be at work when get() returns.
  auto done = std::make_shared<std::promise<void>>();
  auto result = done->get_future();
  mlx_thread().post([&job, done] {
    try {
      job();
      done->set_value();
    } catch (...) {
      done->set_exception(std::current_exception());
    }
  });
  result.get();
}

CallbackScope::CallbackScope() {
  ++callback_depth();
}

CallbackScope::~CallbackScope() {
  --callback_depth();
}

bool CallbackScope::is_inside() {
  return callback_depth() > 0;
}

void require_outside_callback(const char* place) {
  if (CallbackScope::is_inside()) {
    fail(
        ErrorKind::invalid_request,
        place,
        "was called in a callback of mlxx_generate(), which must return "
        "first");
  }
}

}  // namespace mlxx::capi
