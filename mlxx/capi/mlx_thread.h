#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

#include <sys/types.h>

namespace mlxx::capi {

// The one thread that touches MLX arrays: what was made lazily on one thread
// cannot be evaluated on another, and C callers come from any.
class MlxThread {
 public:
  MlxThread();
  // Finishes what was posted.
  ~MlxThread();
  MlxThread(const MlxThread&) = delete;
  MlxThread& operator=(const MlxThread&) = delete;

  // Runs `job` after those posted before. It must not throw. unsupported in a
  // process that was forked from the one that made this: a fork has no threads
  // but its caller.
  void post(std::function<void()> job);

 private:
  void work();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> jobs_;
  bool is_ending_ = false;
  const pid_t process_;
  std::thread thread_;
};

// The one of the C interface. Lives until the process ends: MLX's own threads
// do, and joining at exit would wait for a running answer.
MlxThread& mlx_thread();

// Runs `job` there and rethrows here what it threw.
void run_on_mlx_thread(const std::function<void()>& job);

// While one of these lives, its thread is in a callback of the caller's.
class CallbackScope {
 public:
  CallbackScope();
  ~CallbackScope();
  CallbackScope(const CallbackScope&) = delete;
  CallbackScope& operator=(const CallbackScope&) = delete;

  static bool is_inside();
};

// invalid_request in a callback: what waits for the MLX thread may not be
// called there.
void require_outside_callback(const char* place);

}  // namespace mlxx::capi
