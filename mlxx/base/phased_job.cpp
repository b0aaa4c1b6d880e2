#include "mlxx/base/phased_job.h"

#include <algorithm>
#include <thread>

#include "mlxx/base/pause.h"

namespace mlxx {
namespace {

// Waiting longer than this means that a thread has lost its processor, which
// may be this one.
constexpr int kSpins = 20000;

constexpr size_t kLine = 64;

struct alignas(kLine) Counter {
  std::atomic<int64_t> value{0};
};

}  // namespace

// Of one phase.
struct PhasedJob::Progress {
  Counter done;                     // items
  std::unique_ptr<Counter[]> next;  // per thread, from the start of its range
};

PhasedJob::PhasedJob(std::shared_ptr<ThreadPool> threads)
    : threads_(std::move(threads)) {}

PhasedJob::~PhasedJob() = default;

void PhasedJob::reset(size_t phases) {
  if (phases > capacity_) {
    progress_ = std::make_unique<Progress[]>(phases);
    for (size_t p = 0; p < phases; ++p) {
      progress_[p].next = std::make_unique<Counter[]>(threads());
    }
    capacity_ = phases;
    return;
  }
  for (size_t p = 0; p < phases; ++p) {
    progress_[p].done.value.store(0, std::memory_order_relaxed);
    for (int t = 0; t < threads(); ++t) {
      progress_[p].next[t].value.store(0, std::memory_order_relaxed);
    }
  }
}

void PhasedJob::run_phases(
    std::span<const Phase> phases,
    Call call,
    void* context) {
  reset(phases.size());
  threads_->run([&](int thread) { take_part(phases, thread, call, context); });
}

void PhasedJob::take_part(
    std::span<const Phase> phases,
    int thread,
    Call call,
    void* context) {
  int threads = threads_->size();
  for (size_t p = 0; p < phases.size(); ++p) {
    const Phase& phase = phases[p];
    Progress& progress = progress_[p];
    int64_t done = 0;
    for (int i = 0; i < threads; ++i) {
      int owner = (thread + i) % threads;
      auto range = threads_->split(phase.items, owner);
      auto begin = static_cast<int64_t>(range.begin);
      int64_t count = static_cast<int64_t>(range.end) - begin;
      auto& next = progress.next[owner].value;
      while (next.load(std::memory_order_relaxed) < count) {
        int64_t at = next.fetch_add(phase.grain, std::memory_order_relaxed);
        if (at >= count) {
          break;
        }
        int64_t end = std::min(at + phase.grain, count);
        call(context, static_cast<int>(p), thread, begin + at, begin + end);
        done += end - at;
      }
    }
    auto& all = progress.done.value;
    if (done > 0) {
      all.fetch_add(done, std::memory_order_acq_rel);
    }
    int spins = 0;
    while (all.load(std::memory_order_acquire) < phase.items) {
      pause_briefly();
      if (++spins > kSpins) {
        std::this_thread::yield();
      }
    }
  }
}

}  // namespace mlxx
