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

#include "mlxx/base/pause.h"

namespace mlxx {
namespace {

// Long enough to bridge the operations between two kernels of a decode step,
// short enough not to heat an idle machine.
constexpr auto kSpin = std::chrono::microseconds(200);

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
  // Written before `ticket` opens the job, read by who took a part of it.
  Job job = nullptr;
  void* context = nullptr;
  uint32_t parts = 0;  // per job, the same for all
  // The number of the job in the high half, the next free part in the low one:
  // a worker that wakes late cannot take a part of a job that is over.
  alignas(64) std::atomic<uint64_t> ticket{0};
  alignas(64) std::atomic<uint32_t> epoch{0};  // the job's number, to wait for
  alignas(64) std::atomic<uint32_t> done{0};   // parts
  std::atomic<bool> stopping{false};
  std::vector<std::jthread> workers;

  // Does parts of job `number` until none is free.
  void take_parts(uint32_t number) {
    uint64_t seen = ticket.load(std::memory_order_acquire);
    while (static_cast<uint32_t>(seen >> 32) == number &&
           static_cast<uint32_t>(seen) < parts) {
      if (ticket.compare_exchange_weak(
              seen,
              seen + 1,
              std::memory_order_acq_rel,
              std::memory_order_acquire)) {
        job(context, static_cast<int>(static_cast<uint32_t>(seen)));
        done.fetch_add(1, std::memory_order_release);
        seen = ticket.load(std::memory_order_acquire);
      }
    }
  }

  void work() {
    uint32_t seen = 0;
    while (true) {
      auto deadline = std::chrono::steady_clock::now() + kSpin;
      uint32_t now = epoch.load(std::memory_order_acquire);
      while (now == seen) {
        for (int i = 0; i < 64; ++i) {
          pause_briefly();
        }
        if (std::chrono::steady_clock::now() > deadline) {
          epoch.wait(seen, std::memory_order_acquire);
        }
        now = epoch.load(std::memory_order_acquire);
      }
      seen = now;
      if (stopping.load(std::memory_order_acquire)) {
        return;
      }
      take_parts(seen);
    }
  }

  void open(uint32_t number) {
    ticket.store(uint64_t{number} << 32, std::memory_order_release);
    epoch.store(number, std::memory_order_release);
    epoch.notify_all();
  }
};

ThreadPool::ThreadPool(int threads)
    : size_(threads > 0 ? threads : usable_processors()) {
  if (size_ < 1) {
    size_ = 1;
  }
  state_ = std::make_unique<State>();
  state_->parts = static_cast<uint32_t>(size_);
  for (int thread = 1; thread < size_; ++thread) {
    state_->workers.emplace_back([state = state_.get()] { state->work(); });
  }
}

ThreadPool::~ThreadPool() {
  state_->stopping.store(true, std::memory_order_release);
  state_->epoch.fetch_add(1, std::memory_order_release);
  state_->epoch.notify_all();
}

void ThreadPool::run_job(Job job, void* context) {
  if (size_ == 1) {
    job(context, 0);
    return;
  }
  std::lock_guard lock(state_->one_job_at_a_time);
  uint32_t number = state_->epoch.load(std::memory_order_relaxed) + 1;
  state_->job = job;
  state_->context = context;
  state_->done.store(0, std::memory_order_relaxed);
  state_->open(number);
  state_->take_parts(number);
  auto spin_until = std::chrono::steady_clock::now() + kSpin;
  while (state_->done.load(std::memory_order_acquire) != state_->parts) {
    pause_briefly();
    // A worker that lost its processor needs this one.
    if (std::chrono::steady_clock::now() > spin_until) {
      std::this_thread::yield();
    }
  }
}

}  // namespace mlxx
