#include "mlxx/core/weights_stamp.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "mlxx/core/compiled_function.h"

namespace mlxx {
namespace {

TEST(WeightsStamp, ChangesWithEveryArray) {
  Parameter a({2}, Parameter::Kind::tensor);
  Parameter b({2, 64}, Parameter::Kind::matrix);
  WeightsStamp stamp;
  stamp.add(a);
  stamp.add(b);
  std::vector<uint64_t> seen{stamp()};
  std::vector<WeightArrays> held;
  auto set = [&](Parameter& parameter, const WeightArrays& arrays) {
    held.push_back(arrays);
    parameter.set(arrays);
    uint64_t now = stamp();
    EXPECT_EQ(now, stamp());
    EXPECT_EQ(std::ranges::count(seen, now), 0);
    seen.push_back(now);
  };
  set(a, {mx::ones({2}), std::nullopt, std::nullopt});
  set(a, {mx::ones({2}), std::nullopt, std::nullopt});
  mx::array dense = mx::ones({2, 64});
  set(b, {dense, std::nullopt, std::nullopt});
  set(b, {dense, mx::ones({2, 1}), std::nullopt});
  set(b, {dense, held.back().scales, mx::ones({2, 1})});
}

TEST(WeightsStamp, MakesACompiledFunctionFollowItsWeights) {
  Parameter weight({1}, Parameter::Kind::tensor);
  auto set = [&](float value) {
    weight.set({mx::full({1}, value), std::nullopt, std::nullopt});
  };
  set(2);
  WeightsStamp stamp;
  stamp.add(weight);
  CompiledFunction scaled(
      [&](const std::vector<mx::array>& inputs) {
        return std::vector{mx::multiply(inputs[0], weight.value())};
      },
      {.stamp = stamp});
  auto of_three = [&] { return scaled({mx::array(3.0f)})[0].item<float>(); };
  EXPECT_EQ(of_three(), 6);
  EXPECT_EQ(of_three(), 6);
  for (int i = 0; i < 50; ++i) {
    set(static_cast<float>(i));
    EXPECT_EQ(of_three(), static_cast<float>(3 * i));
  }
  EXPECT_EQ(scaled.trace_count(), 51);
}

}  // namespace
}  // namespace mlxx
