#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

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

  // Runs `job` after those posted before. It must not throw.
  void post(std::function<void()> job);

 private:
  void work();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> jobs_;
  bool is_ending_ = false;
  std::thread thread_;
};

}  // namespace mlxx::capi
