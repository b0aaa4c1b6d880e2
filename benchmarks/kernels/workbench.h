#pragma once

#include <benchmark/benchmark.h>

#include <chrono>

#include "benchmarks/kernels/machine_peaks.h"

namespace mlxx::benchmarks {

// What every benchmark computes with and is compared with.
struct Workbench {
  kernels::Selection selection;
  MachinePeaks peaks;
};

// What one iteration reads and computes.
struct Work {
  double bytes;
  double operations;
  double peak_operations;  // per second
};

// Runs `once(iteration)` as often as the benchmark asks, and reports rates and
// their share of the peak.
template <typename Once>
void measure(
    benchmark::State& state,
    const Workbench& bench,
    const Work& work,
    const Once& once) {
  int64_t iteration = 0;
  auto start = std::chrono::steady_clock::now();
  for (auto _ : state) {
    once(iteration++);
  }
  std::chrono::duration<double> elapsed =
      std::chrono::steady_clock::now() - start;
  double rate = static_cast<double>(iteration) / elapsed.count();
  state.counters["GB/s"] = rate * work.bytes * 1e-9;
  state.counters["GOP/s"] = rate * work.operations * 1e-9;
  state.counters["%mem"] =
      100 * rate * work.bytes / bench.peaks.bytes_per_second;
  state.counters["%ops"] = 100 * rate * work.operations / work.peak_operations;
}

void register_products(const Workbench& bench);
void register_attention(const Workbench& bench);
void register_choices(const Workbench& bench);
void register_recurrent(const Workbench& bench);
void register_rows(const Workbench& bench);
void register_training(const Workbench& bench);

}  // namespace mlxx::benchmarks
