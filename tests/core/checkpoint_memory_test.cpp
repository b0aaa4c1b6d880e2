#include <gtest/gtest.h>

#include "mlxx/core/memory.h"
#include "same_gradients.h"

namespace mlxx {
namespace {

constexpr int kBlocks = 12;
constexpr int kRows = 32768;
constexpr int kWidth = 128;  // 16 MiB of float32 per activation
constexpr int kRank = 4;

struct Measured {
  Gradients gradients;
  size_t peak;  // bytes above what was there before
};

// A network whose adapters are captured; differentiated in all of them and in
// its input. The operations are cheap ones that keep their inputs.
Measured train_step(Wrap wrap) {
  mx::array x =
      mx::reshape(mx::arange(0, kRows * kWidth, mx::float32), {kRows, kWidth});
  Arrays arguments = {x * 1e-7f};
  for (int i = 0; i < kBlocks; ++i) {
    arguments.push_back(numbers({kWidth, kRank}, 200 + i) * 0.1f);
    arguments.push_back(numbers({kRank, kWidth}, 300 + i) * 0.1f);
  }
  mx::eval(arguments);
  auto loss = [&](const Arrays& tracers) -> Arrays {
    mx::array x = tracers[0];
    for (int i = 0; i < kBlocks; ++i) {
      auto block = wrap([&, i](const Arrays& in) -> Arrays {
        const mx::array& a = tracers[1 + 2 * i];
        const mx::array& b = tracers[2 + 2 * i];
        mx::array h = mx::matmul(mx::matmul(in[0], a), b) + in[0];
        for (int k = 0; k < 6; ++k) {
          h = h * h + in[0];
        }
        return {h * 0.5f};
      });
      x = block({x})[0];
    }
    return {mx::mean(x)};
  };
  mx::synchronize();
  size_t before = memory_use().active;
  reset_peak_memory();
  Gradients gradients = gradients_of(loss, arguments);
  return {gradients, memory_use().peak - before};
}

TEST(CheckpointMemory, PeakIsAThirdOfThePlainRunsAtMost) {
  Measured plain = train_step(inlined);
  Measured less = train_step(checkpointed);
  EXPECT_GT(plain.peak, size_t{kBlocks} * 16 << 20);
  EXPECT_LE(less.peak * 3, plain.peak)
      << (less.peak >> 20) << " MiB of " << (plain.peak >> 20);
  RecordProperty("plain_mib", std::to_string(plain.peak >> 20));
  RecordProperty("checkpointed_mib", std::to_string(less.peak >> 20));
  expect_same(plain.gradients, less.gradients);
}

}  // namespace
}  // namespace mlxx
