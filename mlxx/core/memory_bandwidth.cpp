#include "mlxx/core/memory_bandwidth.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

#include "mlxx/core/device.h"

namespace mlxx {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kRounds = 5;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Several sums, so that the additions do not wait for each other.
uint64_t sum(const uint64_t* data, size_t count) {
  uint64_t sums[8] = {};
  for (size_t i = 0; i + 8 <= count; i += 8) {
    for (size_t j = 0; j < 8; ++j) {
      sums[j] += data[i + j];
    }
  }
  uint64_t total = 0;
  for (uint64_t part : sums) {
    total += part;
  }
  return total;
}

double measure_cpu(unsigned threads) {
  // Per thread; several times any last-level cache.
  constexpr size_t kBytes = size_t{96} << 20;
  if (threads == 0) {
    threads = std::max(1u, std::thread::hardware_concurrency());
  }
  threads = std::min(threads, 32u);
  std::vector<std::vector<uint64_t>> blocks(threads);
  std::vector<uint64_t> results(threads);
  auto on_all = [&](const auto& work) {
    std::vector<std::jthread> pool;
    for (unsigned t = 0; t < threads; ++t) {
      pool.emplace_back([&, t] { work(t); });
    }
  };
  // Each thread touches its own block first, so that it lies near its core.
  on_all([&](unsigned t) { blocks[t].assign(kBytes / 8, t + 1); });
  double best = 0;
  for (int round = 0; round < kRounds; ++round) {
    auto start = Clock::now();
    on_all([&](unsigned t) { results[t] = sum(blocks[t].data(), kBytes / 8); });
    best = std::max(best, threads * kBytes / seconds_since(start));
  }
  // The sums are used, so that the loops are not thrown away.
  bool right = std::ranges::all_of(results, [](uint64_t s) { return s > 0; });
  return right ? best : 0;
}

double measure_gpu() {
  constexpr int kCount = 1 << 28;  // 1 GiB of float32
  mx::array data = mx::full({kCount}, 1.0f, mx::float32);
  mx::eval(data);
  double best = 0;
  for (int round = 0; round < kRounds; ++round) {
    auto start = Clock::now();
    mx::eval(mx::sum(data));
    best = std::max(best, 4.0 * kCount / seconds_since(start));
  }
  return best;
}

}  // namespace

double measure_memory_bandwidth(int threads) {
  return backend() == Backend::cpu ? measure_cpu(threads) : measure_gpu();
}

}  // namespace mlxx
