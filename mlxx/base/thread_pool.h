#pragma once

#include <cstddef>
#include <memory>
#include <type_traits>

namespace mlxx {

// Threads that compute parts of one job together. MLX's CPU stream is one
// thread; a kernel that it runs splits its work here. Workers spin for a short
// time after a job, because the next one of a decode step follows within
// microseconds, and then sleep.
class ThreadPool {
 public:
  // `threads` counts the caller; 0: one per processor that this process may
  // use.
  explicit ThreadPool(int threads = 0);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const {
    return size_;
  }

  // Calls work(0) ... work(size() - 1), each on its own thread, the caller's
  // among them, and returns when all have returned. Jobs of several callers
  // run one after the other. `work` must not throw and must not call run().
  template <typename Work>
  void run(Work&& work) {
    using Callable = std::remove_reference_t<Work>;
    run_job(
        [](void* context, int thread) {
          (*static_cast<Callable*>(context))(thread);
        },
        const_cast<void*>(static_cast<const void*>(std::addressof(work))));
  }

  // The part of [0, count) that belongs to `thread`: contiguous, so that each
  // thread reads one stream, and of nearly equal length.
  struct Range {
    size_t begin;
    size_t end;
  };
  Range split(size_t count, int thread) const {
    size_t n = static_cast<size_t>(size_);
    size_t t = static_cast<size_t>(thread);
    return {count * t / n, count * (t + 1) / n};
  }

 private:
  using Job = void (*)(void* context, int thread);
  void run_job(Job job, void* context);

  struct State;
  int size_;
  std::unique_ptr<State> state_;
};

}  // namespace mlxx
