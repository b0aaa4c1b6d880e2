#include "mlxx/base/thread_pool.h"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#ifdef __linux__
#include <sched.h>
#endif

namespace mlxx {
namespace {

// Long enough to bridge the operations between two kernels of a decode step,
// short enough not to heat an idle machine.
constexpr auto kSpin = std::chrono::microseconds(200);

void pause_briefly() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

int usable_processors() {
#ifdef __linux__
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) {
    return CPU_COUNT(&set);
  }
#endif
  return static_cast<int>(std::thread::hardware_concurrency());
}

}  // namespace

struct ThreadPool::State {
  std::mutex one_job_at_a_time;
  // Written before `epoch` is advanced, read by workers after they saw it.
  Job job = nullptr;
  void* context = nullptr;
  alignas(64) std::atomic<uint32_t> epoch{0};
  alignas(64) std::atomic<int> running{0};
  std::atomic<bool> stopping{false};
  std::vector<std::jthread> workers;

  void work(int thread) {
    uint32_t seen = 0;
    while (true) {
      auto deadline = std::chrono::steady_clock::now() + kSpin;
      while (epoch.load(std::memory_order_acquire) == seen) {
        for (int i = 0; i < 64; ++i) {
          pause_briefly();
        }
        if (std::chrono::steady_clock::now() > deadline) {
          epoch.wait(seen, std::memory_order_acquire);
        }
      }
      ++seen;
      if (stopping.load(std::memory_order_relaxed)) {
        return;
      }
      job(context, thread);
      running.fetch_sub(1, std::memory_order_release);
    }
  }

  void advance() {
    epoch.fetch_add(1, std::memory_order_release);
    epoch.notify_all();
  }
};

ThreadPool::ThreadPool(int threads)
    : size_(threads > 0 ? threads : usable_processors()) {
  if (size_ < 1) {
    size_ = 1;
  }
  state_ = std::make_unique<State>();
  for (int thread = 1; thread < size_; ++thread) {
    state_->workers.emplace_back(
        [state = state_.get(), thread] { state->work(thread); });
  }
}

ThreadPool::~ThreadPool() {
  state_->stopping.store(true, std::memory_order_relaxed);
  state_->advance();
}

void ThreadPool::run_job(Job job, void* context) {
  if (size_ == 1) {
    job(context, 0);
    return;
  }
  std::lock_guard lock(state_->one_job_at_a_time);
  state_->job = job;
  state_->context = context;
  state_->running.store(size_ - 1, std::memory_order_relaxed);
  state_->advance();
  job(context, 0);
  auto spin_until = std::chrono::steady_clock::now() + kSpin;
  while (state_->running.load(std::memory_order_acquire) != 0) {
    pause_briefly();
    // A worker that lost its processor needs this one.
    if (std::chrono::steady_clock::now() > spin_until) {
      std::this_thread::yield();
    }
  }
}

}  // namespace mlxx
