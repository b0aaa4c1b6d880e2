// What the library relies on of MLX's streams and devices. Nothing here wraps
// them: MLX gives the contract, and these tests notice if it changes.
#include <stdexcept>
#include <string>
#include <thread>

#include <gtest/gtest.h>
#include <mlx/primitives.h>
#include <mlx/utils.h>

#include "mlxx/core/mlx.h"

namespace mlxx {
namespace {

const mx::Device kCpu(mx::Device::cpu);

mx::array two(mx::StreamOrDevice s = {}) {
  return mx::add(mx::ones({2}, mx::float32, s), mx::array(1.0f), s);
}

// What `call` throws on a thread of its own; "nothing" if it does not.
template <typename Call>
std::string thrown_on_another_thread(Call call) {
  std::string message = "nothing";
  std::thread([&] {
    try {
      call();
    } catch (const std::exception& error) {
      message = error.what();
    }
  }).join();
  return message;
}

TEST(Streams, TheDefaultStreamIsOneForEachThread) {
  mx::Stream mine = mx::default_stream(kCpu);
  EXPECT_EQ(mine, mx::default_stream(kCpu));
  EXPECT_EQ(mine.device, kCpu);
  EXPECT_EQ(
      thrown_on_another_thread([&] {
        if (mx::default_stream(kCpu) == mine) {
          throw std::runtime_error("the same stream");
        }
      }),
      "nothing");
}

TEST(Streams, OperationsRunOnTheStreamThatTheyAreGiven) {
  mx::Stream other = mx::new_stream(kCpu);
  EXPECT_EQ(two(kCpu).primitive().stream(), mx::default_stream(kCpu));
  EXPECT_EQ(two(other).primitive().stream(), other);
}

TEST(Streams, AStreamMayReadWhatAnotherComputes) {
  mx::Stream other = mx::new_stream(kCpu);
  mx::array a = two(other);
  for (int i = 0; i < 100; ++i) {
    a = mx::add(
        a,
        mx::array(1.0f),
        i % 2 == 0 ? mx::default_stream(kCpu) : other);
  }
  mx::array b = mx::sum(a, kCpu);
  EXPECT_EQ(b.item<float>(), 204.0f);
}

TEST(Streams, SynchronizeWaitsForWhatWasAskedFor) {
  mx::Stream other = mx::new_stream(kCpu);
  mx::array a = mx::matmul(mx::ones({256, 256}), mx::ones({256, 256}), kCpu);
  mx::array b = mx::exp(mx::ones({1 << 20}, mx::float32, other), other);
  mx::async_eval(a, b);
  mx::synchronize();
  EXPECT_TRUE(a.is_available());
  mx::synchronize(other);
  EXPECT_TRUE(b.is_available());
}

TEST(Streams, AsyncEvalThenEvalGivesTheValue) {
  mx::array a = two();
  mx::async_eval(a);
  mx::array b = a * a;
  mx::eval(a, b);
  EXPECT_EQ(mx::sum(b).item<float>(), 8.0f);
}

TEST(Streams, AContextChangesTheDefaultAndRestoresItOnEveryExit) {
  if (mx::default_device() != kCpu) {
    GTEST_SKIP() << "MLX restores the default stream of its default device";
  }
  mx::Stream before = mx::default_stream(kCpu);
  mx::Stream other = mx::new_stream(kCpu);
  try {
    mx::StreamContext outer(other);
    EXPECT_EQ(mx::default_stream(kCpu), other);
    {
      mx::StreamContext inner(before);
      EXPECT_EQ(mx::default_stream(kCpu), before);
    }
    EXPECT_EQ(two(kCpu).primitive().stream(), other);
    throw std::logic_error("out");
  } catch (const std::logic_error&) {
  }
  EXPECT_EQ(mx::default_stream(kCpu), before);
}

TEST(Streams, ALazyArrayBelongsToItsThread) {
  mx::array lazy = two();
  std::string message = thrown_on_another_thread([&] { mx::eval(lazy); });
  EXPECT_NE(message.find("in current thread"), std::string::npos) << message;
  EXPECT_EQ(mx::sum(lazy).item<float>(), 4.0f);
}

TEST(Streams, AnEvaluatedArrayBelongsToAllThreads) {
  mx::array a = two();
  a.eval();
  EXPECT_EQ(
      thrown_on_another_thread([&] {
        if (mx::sum(a).item<float>() != 4.0f) {
          throw std::runtime_error("a wrong sum");
        }
      }),
      "nothing");
}

TEST(Streams, AThreadUnsafeStreamServesAnyThreadInTurn) {
  mx::Stream shared = mx::new_thread_unsafe_stream(kCpu);
  mx::array lazy = two(shared);
  EXPECT_EQ(thrown_on_another_thread([&] { mx::eval(lazy); }), "nothing");
  EXPECT_TRUE(lazy.is_available());
}

TEST(Streams, ADeviceThatIsNotThereIsRefused) {
  if (mx::is_available(mx::Device::gpu)) {
    GTEST_SKIP() << "this MLX has a GPU";
  }
  EXPECT_EQ(mx::default_device(), kCpu);
  EXPECT_EQ(mx::device_count(mx::Device::gpu), 0);
  EXPECT_ANY_THROW(mx::set_default_device(mx::Device::gpu));
  EXPECT_ANY_THROW(mx::default_stream(mx::Device::gpu));
  EXPECT_ANY_THROW(mx::new_stream(mx::Device::gpu));
  EXPECT_ANY_THROW(two(mx::Device::gpu));
  EXPECT_EQ(mx::default_device(), kCpu);
}

TEST(Streams, AnErrorOfEvaluationLeavesTheStreamUsable) {
  mx::Stream unknown(12345, kCpu);
  EXPECT_ANY_THROW({
    mx::array a = two(unknown);
    a.eval();
  });
  EXPECT_EQ(mx::sum(two()).item<float>(), 4.0f);
}

}  // namespace
}  // namespace mlxx
