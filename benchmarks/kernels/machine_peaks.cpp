#include "benchmarks/kernels/machine_peaks.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "benchmarks/kernels/peak_kernels.h"
#include "mlxx/core/memory_bandwidth.h"

namespace mlxx::benchmarks {
namespace {

using Clock = std::chrono::steady_clock;

const PeakKernels& peak_kernels(kernels::InstructionSet set) {
#if defined(MLXX_HAS_X86_KERNELS)
  switch (set) {
    case kernels::InstructionSet::avx512bf16:
    case kernels::InstructionSet::avx512vnni:
      return kPeakKernelsAvx512Vnni;
    case kernels::InstructionSet::avx512:
      return kPeakKernelsAvx512;
    case kernels::InstructionSet::avx2:
      return kPeakKernelsAvx2;
    default:
      break;
  }
#endif
  static_cast<void>(set);
  return kPeakKernelsPortable;
}

double best_rate(
    ThreadPool& threads,
    int64_t (*kernel)(int64_t rounds, float* sink)) {
  // Short and many: some fall into a moment without other programs.
  constexpr int64_t kRounds = 100'000;
  constexpr int kRepeats = 500;
  std::vector<float> sinks(threads.size(), 1.0f);
  std::vector<int64_t> operations(threads.size());
  double best = 0;
  for (int repeat = 0; repeat < kRepeats; ++repeat) {
    auto start = Clock::now();
    threads.run([&](int thread) {
      operations[thread] = kernel(kRounds, &sinks[thread]);
    });
    std::chrono::duration<double> elapsed = Clock::now() - start;
    int64_t all = 0;
    for (int64_t n : operations) {
      all += n;
    }
    best = std::max(best, static_cast<double>(all) / elapsed.count());
  }
  return best;
}

}  // namespace

MachinePeaks measure_peaks(const kernels::Selection& selection) {
  const PeakKernels& kernels = peak_kernels(selection.instruction_set);
  ThreadPool& threads = *selection.threads;
  return {
      measure_memory_bandwidth(threads.size()),
      best_rate(threads, kernels.multiply_adds),
      best_rate(threads, kernels.byte_products)};
}

int64_t last_level_cache() {
  constexpr int64_t kGuess = int64_t{32} << 20;
  int64_t bytes = 0;
#if defined(_SC_LEVEL3_CACHE_SIZE)
  bytes = std::max<int64_t>(
      sysconf(_SC_LEVEL3_CACHE_SIZE),
      sysconf(_SC_LEVEL2_CACHE_SIZE));
#endif
  return bytes > 0 ? bytes : kGuess;
}

}  // namespace mlxx::benchmarks
