#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <type_traits>

#include "mlxx/base/thread_pool.h"

namespace mlxx {

// A job of many short phases, each of which needs all of the one before: the
// threads go through the phases together, for a fraction of what handing out a
// job per phase costs. Items of a phase are dealt out in equal ranges, so that
// each thread reads one stream of memory; who is through with its own takes
// from the others. So the job never waits for a thread that the system has
// taken the processor from, unless that thread is in the middle of its items.
class PhasedJob {
 public:
  struct Phase {
    int64_t items;  // 0: nothing to do
    int64_t grain;  // items taken at a time, at least 1
  };

  explicit PhasedJob(std::shared_ptr<ThreadPool> threads);
  ~PhasedJob();

  int threads() const {
    return threads_->size();
  }

  // Calls work(phase, thread, begin, end) until the items of every phase are
  // done, and returns. No two calls at once have the same `thread`, which is
  // below threads(). `work` must not throw. One job at a time per object.
  template <typename Work>
  void run(std::span<const Phase> phases, Work&& work) {
    using Callable = std::remove_reference_t<Work>;
    run_phases(
        phases,
        [](void* context, int phase, int thread, int64_t begin, int64_t end) {
          (*static_cast<Callable*>(context))(phase, thread, begin, end);
        },
        const_cast<void*>(static_cast<const void*>(std::addressof(work))));
  }

 private:
  using Call = void (*)(void*, int phase, int thread, int64_t, int64_t);
  struct Progress;

  void run_phases(std::span<const Phase> phases, Call call, void* context);
  void reset(size_t phases);
  void take_part(
      std::span<const Phase> phases,
      int thread,
      Call call,
      void* context);

  std::shared_ptr<ThreadPool> threads_;
  size_t capacity_ = 0;  // phases
  std::unique_ptr<Progress[]> progress_;
};

}  // namespace mlxx
