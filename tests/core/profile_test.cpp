#include "mlxx/core/profile.h"

#include <thread>

#include <gtest/gtest.h>

#include "mlxx/core/custom_kernel.h"
#include "mlxx/core/memory.h"

namespace mlxx {
namespace {

const OpTime* find(const Profile& profile, const std::string& name) {
  for (const auto& op : profile.ops) {
    if (op.name == name) {
      return &op;
    }
  }
  return nullptr;
}

int count(const Profile& profile, const std::string& name) {
  const OpTime* op = find(profile, name);
  return op ? op->count : 0;
}

mx::array random(mx::Shape shape) {
  mx::array x = mx::random::normal(shape);
  x.eval();
  return x;
}

TEST(Profile, CountsEveryOperationOnceUnderItsName) {
  mx::array x = random({8, 8});
  mx::array shared = mx::exp(x);
  mx::array a = mx::matmul(shared, shared);
  mx::array b = mx::add(mx::add(a, shared), mx::exp(a));
  Profile result = profile({b, a, b});
  EXPECT_EQ(count(result, "Exp"), 2);
  EXPECT_EQ(count(result, "Matmul"), 1);
  EXPECT_EQ(count(result, "Add"), 2);
  EXPECT_EQ(result.count(), 5);
  EXPECT_TRUE(b.is_available());
  // exp reads and writes 64 floats, twice.
  EXPECT_EQ(find(result, "Exp")->bytes, 2 * 2 * 64 * 4u);
  EXPECT_EQ(find(result, "Add")->bytes, 2 * 3 * 64 * 4u);
  double sum = 0;
  double last = 1e9;
  for (const auto& op : result.ops) {
    EXPECT_GT(op.seconds, 0);
    EXPECT_LE(op.seconds, last);
    last = op.seconds;
    sum += op.seconds;
  }
  EXPECT_DOUBLE_EQ(result.seconds(), sum);
  // It is evaluated now.
  EXPECT_EQ(profile({a, b}).count(), 0);
}

TEST(Profile, ResultsAreThoseOfEval) {
  mx::array x = random({16, 64});
  auto graph = [&] {
    mx::array h = mx::softmax(mx::matmul(x, mx::transpose(x)), -1);
    auto parts = mx::split(mx::matmul(h, x), 4, -1);
    return std::vector{mx::sort(parts[3] * parts[1]), mx::sum(parts[0])};
  };
  auto plain = graph();
  mx::eval(plain);
  auto profiled = graph();
  EXPECT_GT(profile(profiled).count(), 5);
  for (size_t i = 0; i < plain.size(); ++i) {
    EXPECT_TRUE(mx::array_equal(plain[i], profiled[i]).item<bool>());
  }
}

TEST(Profile, AnOperationWithSeveralOutputsIsOne) {
  mx::array x = random({8});
  auto parts = mx::divmod(x, mx::array(2.0f));
  mx::array both = parts[0] + parts[1];
  Profile result = profile({both, parts[1]});
  EXPECT_EQ(count(result, "DivMod"), 1);
  EXPECT_EQ(count(result, "Add"), 1);
}

TEST(Profile, ChargesNoOperationForWhatIsAlreadyUnderWay) {
  static constexpr auto kPause = std::chrono::milliseconds(300);
  CustomKernel slow(
      {.name = "slow",
       .output_names = {"y"},
       .cpu = [](const CpuKernelArguments&) {
         std::this_thread::sleep_for(kPause);
       }});
  CustomKernelCall call{
      .output_shapes = {{4}},
      .output_dtypes = {mx::float32},
      .init_value = 1,
      .stream = mx::Device(mx::Device::cpu)};
  mx::array started = slow(call)[0];
  mx::async_eval(started);
  Profile result = profile({mx::exp(started)});
  EXPECT_EQ(result.count(), 1);
  EXPECT_LT(result.seconds(), 0.25);
  // And charges it for what it does itself.
  result = profile({mx::exp(slow(call)[0])});
  EXPECT_EQ(result.ops[0].name, "custom kernel slow");
  EXPECT_GE(result.ops[0].seconds, 0.3);
  EXPECT_EQ(result.ops[0].bytes, 16u);
}

TEST(Profile, WalksDeepGraphs) {
  mx::array x = random({1});
  constexpr int kDepth = 20000;
  for (int i = 0; i < kDepth; ++i) {
    x = mx::negative(x);
  }
  EXPECT_EQ(profile({x}).count(), kDepth);
}

TEST(Profile, KeepsNoIntermediateResults) {
  constexpr int kSize = 1 << 20;
  mx::array x = mx::zeros({kSize});
  x.eval();
  clear_cache();
  reset_peak_memory();
  uint64_t before = memory_use().active;
  mx::array y = x;
  for (int i = 0; i < 16; ++i) {
    y = mx::sin(y);
  }
  profile({y});
  // A GPU frees the input of an operation after it has begun with the next.
  size_t arrays = backend() == Backend::cpu ? 3 : 5;
  EXPECT_LT(memory_use().peak - before, arrays * kSize * sizeof(float));
}

TEST(Profile, WhatAnOperationThrowsComesOut) {
  CustomKernel broken(
      {.name = "broken",
       .output_names = {"y"},
       .cpu = [](const CpuKernelArguments&) {
         throw std::runtime_error("broken on purpose");
       }});
  mx::array y = broken(
      {.output_shapes = {{4}},
       .output_dtypes = {mx::float32},
       .stream = mx::Device(mx::Device::cpu)})[0];
  try {
    profile({mx::exp(y)});
    FAIL() << "nothing was thrown";
  } catch (const std::exception& error) {
    EXPECT_STREQ(error.what(), "broken on purpose");
  }
  EXPECT_EQ(profile({mx::exp(random({4}))}).count(), 1);
}

TEST(Profile, CannotBeTakenWhileCompiling) {
  mx::set_compile_mode(mx::CompileMode::no_fuse);
  auto compiled = mx::compile([](const std::vector<mx::array>& inputs) {
    profile({mx::exp(inputs[0])});
    return inputs;
  });
  EXPECT_ANY_THROW(compiled({random({4})}));
}

TEST(Profile, LeavesAGraphThatIsDifferentiatedWhole) {
  auto gradient = mx::grad([](const std::vector<mx::array>& inputs) {
    mx::array loss = mx::sum(mx::square(inputs[0]));
    EXPECT_EQ(count(profile({loss}), "Square"), 1);
    return loss;
  })({mx::full({2}, 3.0f)});
  EXPECT_EQ(mx::sum(gradient[0]).item<float>(), 12);
}

TEST(Profile, Adds) {
  Profile a{{{"Exp", 1, 2.0, 8}, {"Add", 3, 1.0, 16}}};
  Profile b{{{"Add", 1, 3.0, 1}, {"Sin", 2, 0.5, 2}}};
  a.add(b);
  ASSERT_EQ(a.ops.size(), 3u);
  EXPECT_EQ(a.ops[0].name, "Add");
  EXPECT_EQ(a.ops[0].count, 4);
  EXPECT_EQ(a.ops[0].seconds, 4.0);
  EXPECT_EQ(a.ops[0].bytes, 17u);
  EXPECT_EQ(a.ops[2].name, "Sin");
  EXPECT_EQ(a.count(), 7);
}

TEST(Profile, KnowsWhatOneEvaluationCosts) {
  double overhead = profile_overhead();
  EXPECT_GT(overhead, 0);
  EXPECT_LT(overhead, 0.01);
  EXPECT_EQ(profile({}).count(), 0);
}

}  // namespace
}  // namespace mlxx
