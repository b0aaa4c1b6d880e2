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

  // Calls work(0) ... work(size() - 1), each once, and returns when all have
  // returned. Part i is meant for thread i; a part that no thread has begun
  // when the caller is through with its own is done by the caller, so that a
  // busy machine never makes a job slower than one thread would be. Jobs of
  // several callers run one after the other. `work` must not throw and must
  // not call run().
  template <typename Work>
  void run(Work&& work) {
    using Callable = std::remove_reference_t<Work>;
    run_job(
        [](void* context, int part) {
          (*static_cast<Callable*>(context))(part);
        },
        const_cast<void*>(static_cast<const void*>(std::addressof(work))));
  }

  // Part `part` of [0, count): contiguous, so that each thread reads one
  // stream, and of nearly equal length.
  struct Range {
    size_t begin;
    size_t end;
  };
  Range split(size_t count, int part) const {
    size_t n = static_cast<size_t>(size_);
    size_t p = static_cast<size_t>(part);
    return {count * p / n, count * (p + 1) / n};
  }

 private:
  using Job = void (*)(void* context, int part);
  void run_job(Job job, void* context);

  struct State;
  int size_;
  std::unique_ptr<State> state_;
};

}  // namespace mlxx
