// Times the CPU kernels: kernel_benchmarks [--benchmark_filter=REGEX].
#include <fmt/format.h>

#include <cstdio>

#include "benchmarks/kernels/workbench.h"
#include "mlxx/core/mlx.h"

namespace {

int measure_all() {
  using namespace mlxx;
  mx::set_default_device(mx::Device::cpu);
  benchmarks::Workbench bench{kernels::select_from_environment(), {}};
  if (!bench.selection.has_cpu_kernels()) {
    fmt::print(stderr, "the fallback has no kernels to time\n");
    return 1;
  }
  bench.peaks = benchmarks::measure_peaks(bench.selection);
  auto text = [](double value, const char* unit) {
    return fmt::format("{:.1f} {}", value * 1e-9, unit);
  };
  benchmark::AddCustomContext(
      "instruction_set",
      std::string(to_string(bench.selection.instruction_set)));
  benchmark::AddCustomContext(
      "threads",
      std::to_string(bench.selection.threads->size()));
  benchmark::AddCustomContext(
      "peak_memory",
      text(bench.peaks.bytes_per_second, "GB/s"));
  benchmark::AddCustomContext(
      "peak_float32",
      text(bench.peaks.float_operations, "GFLOP/s"));
  benchmark::AddCustomContext(
      "peak_bytes",
      text(bench.peaks.byte_operations, "GOP/s"));
  benchmarks::register_products(bench);
  benchmarks::register_attention(bench);
  benchmarks::register_rows(bench);
  benchmarks::register_recurrent(bench);
  benchmarks::register_choices(bench);
  benchmarks::register_training(bench);
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) {
    return 2;
  }
  try {
    return measure_all();
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
