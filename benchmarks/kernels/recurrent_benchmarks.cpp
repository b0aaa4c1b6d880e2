// Ops that carry a state, on the shapes of Qwen3-Next, a Mamba2 of 2.7 billion
// parameters and LFM2; "mlx" is MLX's own op, "plain" the plain operations.
#include <fmt/format.h>

#include "benchmarks/kernels/workbench.h"
#include "mlxx/kernels/gated_delta/gated_delta.h"
#include "mlxx/kernels/short_conv/short_conv.h"
#include "mlxx/kernels/ssm/ssm.h"

namespace mlxx::benchmarks {
namespace {

enum class How { kernel, plain, mlx };

const char* to_string(How how) {
  return how == How::kernel ? "kernel" : how == How::plain ? "plain" : "mlx";
}

mx::array noise(const mx::Shape& shape, float scale) {
  mx::array values = mx::random::uniform(-scale, scale, shape, mx::float32);
  mx::eval(values);
  return values;
}

// Each call takes the state that the one before gave, as decoding does.
template <typename Step>
void run_steps(
    const std::string& name,
    int tokens,
    How how,
    const Workbench& bench,
    const Work& work,
    mx::array state,
    const Step& step) {
  auto run = [=, &bench](benchmark::State& timer) {
    kernels::Selection selection =
        how == How::kernel ? bench.selection : kernels::Selection{};
    mx::array current = state;
    measure(timer, bench, work, [&](int64_t) {
      kernels::StatefulResult result = step(current, selection);
      current = result.state;
      mx::eval(result.out, current);
    });
  };
  benchmark::RegisterBenchmark(
      fmt::format("{}/{}/tokens:{}", name, to_string(how), tokens).c_str(),
      run)
      ->UseRealTime()
      ->MinTime(0.1);
}

void register_gated_delta(const Workbench& bench, int T, How how) {
  constexpr int kKeyHeads = 16;
  constexpr int kHeads = 32;
  constexpr int kSize = 128;
  kernels::GatedDeltaInputs in{
      noise({1, T, kKeyHeads, kSize}, 0.1f),
      noise({1, T, kKeyHeads, kSize}, 0.1f),
      noise({1, T, kHeads, kSize}, 1),
      mx::abs(noise({1, T, kHeads}, 1)),
      mx::abs(noise({1, T, kHeads}, 1)),
      std::nullopt,
      std::nullopt};
  mx::eval(in.decays, in.betas);
  double numbers = static_cast<double>(kHeads) * kSize * kSize;
  // Of each number of the state: decayed, recalled, updated, read.
  Work work{8 * numbers, 7 * numbers * T, bench.peaks.float_operations};
  run_steps(
      "gated_delta",
      T,
      how,
      bench,
      work,
      mx::zeros({1, kHeads, kSize, kSize}),
      [in, how](const mx::array& state, const kernels::Selection& selection) {
        if (how == How::mlx) {
          auto results = mx::fast::gated_delta_update(
              in.queries,
              in.keys,
              in.values,
              in.decays,
              in.betas,
              state);
          return kernels::StatefulResult{results[0], results[1]};
        }
        auto inputs = in;
        inputs.state = state;
        return kernels::gated_delta(inputs, selection);
      });
}

void register_scan(const Workbench& bench, int T, How how) {
  constexpr int kHeads = 80;
  constexpr int kHead = 64;
  constexpr int kSize = 128;
  kernels::SsmInputs in{
      noise({1, T, kHeads, kHead}, 1),
      noise({kHeads}, 1),
      noise({1, T, 1, kSize}, 1),
      noise({1, T, 1, kSize}, 1),
      noise({kHeads}, 1),
      noise({1, T, kHeads}, 1),
      noise({kHeads}, 1),
      0.0f,
      100.0f,
      std::nullopt,
      std::nullopt,
      std::nullopt};
  double numbers = static_cast<double>(kHeads) * kHead * kSize;
  Work work{8 * numbers, 5 * numbers * T, bench.peaks.float_operations};
  run_steps(
      "ssm_scan",
      T,
      how,
      bench,
      work,
      mx::zeros({1, kHeads, kHead, kSize}),
      [in](const mx::array& state, const kernels::Selection& selection) {
        auto inputs = in;
        inputs.state = state;
        return kernels::ssm_scan(inputs, selection);
      });
}

void register_short_conv(const Workbench& bench, int T, How how) {
  constexpr int kChannels = 8192;
  constexpr int kWidth = 4;
  kernels::ShortConvInputs in{
      noise({1, T, kChannels}, 1),
      noise({kChannels, kWidth, 1}, 1),
      std::nullopt,
      true,
      std::nullopt,
      std::nullopt};
  double numbers = static_cast<double>(kChannels) * T;
  Work work{8 * numbers, 2 * kWidth * numbers, bench.peaks.float_operations};
  run_steps(
      "short_conv",
      T,
      how,
      bench,
      work,
      mx::zeros({1, kWidth - 1, kChannels}),
      [in](const mx::array& state, const kernels::Selection& selection) {
        auto inputs = in;
        inputs.state = state;
        return kernels::short_conv(inputs, selection);
      });
}

}  // namespace

void register_recurrent(const Workbench& bench) {
  for (int tokens : {1, 256}) {
    for (How how : {How::kernel, How::plain, How::mlx}) {
      register_gated_delta(bench, tokens, how);
    }
    for (How how : {How::kernel, How::plain}) {
      register_scan(bench, tokens, how);
      register_short_conv(bench, tokens, how);
    }
  }
}

}  // namespace mlxx::benchmarks
