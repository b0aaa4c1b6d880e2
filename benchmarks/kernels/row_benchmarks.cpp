#include <fmt/format.h>

#include <vector>

#include "benchmarks/kernels/workbench.h"
#include "mlxx/kernels/cpu_variants.h"

namespace mlxx::benchmarks {
namespace {

using kernels::ActivationForm;
using kernels::kChunk;

constexpr int kWidths[] = {576, 2048, 3072};
// As many as a prompt's step has: in one core's cache at the smallest width.
constexpr int kRows = 512;

void register_rms_norm(const Workbench& bench, int width) {
  auto run = [&bench, width](benchmark::State& state) {
    const auto& kernels = row_kernels(bench.selection.instruction_set);
    std::vector<float> x(size_t{kRows} * width, 0.5f);
    std::vector<float> weight(width, 1.0f);
    std::vector<float> y(x.size());
    // x is read and y written; of each number a square, a sum, two products.
    Work work{8.0 * x.size(), 4.0 * x.size(), bench.peaks.float_operations};
    measure(state, bench, work, [&](int64_t) {
      bench.selection.threads->run([&](int thread) {
        auto range = bench.selection.threads->split(kRows, thread);
        for (size_t row = range.begin; row < range.end; ++row) {
          kernels.rms_norm(
              x.data() + row * width,
              weight.data(),
              1e-5f,
              width,
              y.data() + row * width);
        }
      });
      benchmark::DoNotOptimize(y.data());
    });
  };
  benchmark::RegisterBenchmark(
      fmt::format("rms_norm/{}/rows:{}", width, kRows).c_str(),
      run)
      ->UseRealTime()
      ->MinTime(0.1);
}

void register_quantize_row(
    const Workbench& bench,
    int width,
    ActivationForm form) {
  auto run = [&bench, width, form](benchmark::State& state) {
    const auto& kernels = byte_kernels(bench.selection.instruction_set);
    bool two = form == ActivationForm::int16;
    int64_t chunks = width / kChunk;
    std::vector<float> x(size_t{kRows} * width, 0.5f);
    std::vector<int8_t> high(x.size());
    std::vector<int8_t> low(x.size());
    std::vector<float> scales(kRows * chunks);
    std::vector<float> sums(kRows * chunks);
    std::vector<int32_t> byte_sums(2 * kRows * chunks);
    // Of each number the magnitude compared, a product, a rounding, a sum.
    Work work{
        (two ? 6.0 : 5.0) * x.size(),
        4.0 * x.size(),
        bench.peaks.float_operations};
    measure(state, bench, work, [&](int64_t) {
      bench.selection.threads->run([&](int thread) {
        auto range = bench.selection.threads->split(kRows, thread);
        for (size_t row = range.begin; row < range.end; ++row) {
          kernels.quantize_row(
              x.data() + row * width,
              chunks,
              kernels::ByteOrder::even_first,
              high.data() + row * width,
              two ? low.data() + row * width : nullptr,
              scales.data() + row * chunks,
              sums.data() + row * chunks,
              byte_sums.data() + 2 * row * chunks);
        }
      });
      benchmark::DoNotOptimize(high.data());
    });
  };
  benchmark::RegisterBenchmark(
      fmt::format("quantize_row/{}/{}/rows:{}", width, to_string(form), kRows)
          .c_str(),
      run)
      ->UseRealTime()
      ->MinTime(0.1);
}

}  // namespace

void register_rows(const Workbench& bench) {
  for (int width : kWidths) {
    register_rms_norm(bench, width);
    register_quantize_row(bench, width, ActivationForm::int8);
    register_quantize_row(bench, width, ActivationForm::int16);
  }
}

}  // namespace mlxx::benchmarks
