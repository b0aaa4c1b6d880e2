#include "mlxx/core/host_values.h"

#include <complex>
#include <vector>

#include <gtest/gtest.h>

#include "mlxx/core/dtype.h"
#include "mlxx/core/host_array.h"
#include "tests/core/error_of.h"

namespace mlxx {
namespace {

const mx::Device kCpu(mx::Device::cpu);

template <typename T>
class HostValuesOf : public ::testing::Test {};

using Types = ::testing::Types<
    bool,
    uint8_t,
    uint16_t,
    uint32_t,
    uint64_t,
    int8_t,
    int16_t,
    int32_t,
    int64_t,
    mx::float16_t,
    float,
    double,
    mx::bfloat16_t,
    mx::complex64_t>;
TYPED_TEST_SUITE(HostValuesOf, Types);

TYPED_TEST(HostValuesOf, ReadsItsOwnDtypeAndRefusesTheOthers) {
  mx::Dtype own = std::is_same_v<TypeParam, double>
      ? mx::float64
      : mx::Dtype(mx::TypeToDtype<TypeParam>());
  for (const auto& row : dtypes()) {
    mx::array a = mx::astype(mx::array({0, 1}), row.dtype, kCpu);
    mx::array one = mx::slice(a, {1}, {2}, kCpu);
    if (row.dtype == own) {
      HostValues<TypeParam> values(a, "x");
      EXPECT_TRUE(values.span()[0] == static_cast<TypeParam>(0.0f));
      EXPECT_TRUE(values.span()[1] == static_cast<TypeParam>(1.0f));
      EXPECT_TRUE(item_of<TypeParam>(one, "x") == static_cast<TypeParam>(1.0f));
    } else {
      auto wrong = fmt::format(
          "[x] the array must be {}, it is {}",
          dtype_name(own),
          row.name);
      EXPECT_ERROR(HostValues<TypeParam>(a, "x"), "invalid_request", wrong);
      EXPECT_ERROR(item_of<TypeParam>(one, "x"), "invalid_request", wrong);
    }
  }
}

TEST(HostValues, Evaluates) {
  mx::array lazy = mx::arange(0.0f, 4.0f, 1.0f) * mx::array(2.0f);
  EXPECT_FALSE(lazy.is_available());
  HostValues<float> values(lazy, "x");
  EXPECT_EQ(
      std::vector<float>(values.span().begin(), values.span().end()),
      (std::vector<float>{0, 2, 4, 6}));
}

TEST(HostValues, ReadsInRowOrderWhateverTheStrides) {
  mx::array a = mx::reshape(mx::arange(6), {2, 3});
  auto read = [](const mx::array& value) {
    HostValues<int32_t> values(value, "x");
    return std::vector<int32_t>(values.span().begin(), values.span().end());
  };
  EXPECT_EQ(read(mx::transpose(a)), (std::vector<int32_t>{0, 3, 1, 4, 2, 5}));
  EXPECT_EQ(
      read(mx::slice(a, {0, 2}, {2, -4}, {1, -2})),
      (std::vector<int32_t>{2, 0, 5, 3}));
  EXPECT_EQ(
      read(mx::broadcast_to(mx::array(7), {3})),
      (std::vector<int32_t>{7, 7, 7}));
  EXPECT_TRUE(read(mx::zeros({0, 3}, mx::int32)).empty());
  EXPECT_EQ(read(mx::array(5)), (std::vector<int32_t>{5}));
}

TEST(HostValues, DenseArraysAreReadInPlaceAndOutliveTheArray) {
  std::optional<mx::array> a = mx::ones({1000});
  a->eval();
  const float* data = a->data<float>();
  HostValues<float> values(*a, "x");
  EXPECT_EQ(values.span().data(), data);
  a.reset();
  EXPECT_EQ(values.span()[999], 1.0f);
}

TEST(ItemOf, OneElementOfAnyNumberOfAxes) {
  EXPECT_EQ(item_of<float>(mx::array(2.5f), "x"), 2.5f);
  EXPECT_EQ(item_of<int32_t>(mx::full({1, 1, 1}, 3, mx::int32), "x"), 3);
  EXPECT_EQ(item_of<uint32_t>(mx::array(4294967295u), "x"), 4294967295u);
  mx::array view = mx::slice(mx::arange(10), {7}, {8});
  EXPECT_EQ(item_of<int32_t>(view, "x"), 7);
  EXPECT_ERROR(
      item_of<float>(mx::zeros({2, 3}), "loss"),
      "invalid_request",
      "[loss] the array must have one element, its shape is [2, 3]");
  EXPECT_ERROR(
      item_of<float>(mx::zeros({0}), "loss"),
      "invalid_request",
      "its shape is [0]");
}

TEST(ItemOf, InsideATransformedFunctionMlxRefuses) {
  auto function = [](const mx::array& x) {
    return mx::array(item_of<float>(mx::sum(x), "x"));
  };
  EXPECT_ANY_THROW(mx::vmap(function)(mx::ones({2, 3})));
  auto compiled = mx::compile([](const std::vector<mx::array>& inputs) {
    return std::vector<mx::array>{mx::array(item_of<float>(inputs[0], "x"))};
  });
  EXPECT_ANY_THROW(compiled({mx::array(1.0f)}));
}

TEST(HostArray, IsAvailableAndFilledByTheHost) {
  HostArray made = make_host_array({2, 3}, mx::float32);
  EXPECT_TRUE(made.array.is_available());
  auto* floats = reinterpret_cast<float*>(made.data);
  for (int i = 0; i < 6; ++i) {
    floats[i] = static_cast<float>(i);
  }
  EXPECT_TRUE(mx::array_equal(
                  made.array,
                  mx::reshape(mx::arange(0.0f, 6.0f, 1.0f), {2, 3}))
                  .item<bool>());
  HostArray empty = make_host_array({0, 3}, mx::int8);
  EXPECT_EQ(empty.array.size(), 0u);
  EXPECT_NE(empty.data, nullptr);
}

TEST(HostArray, WhatDoesNotFitIsRefusedAndNotCounted) {
  size_t before = mx::get_active_memory();
  constexpr int kMax = 2147483647;
  EXPECT_ERROR(
      make_host_array({kMax, kMax}, mx::uint8),
      "out_of_memory",
      "4611686014132420609 bytes");
  EXPECT_ERROR(
      make_host_array({kMax, kMax, kMax}, mx::float32),
      "out_of_memory",
      "the system has no");
  // Within the address space, beyond what it can be.
  EXPECT_ERROR(
      make_host_buffer(size_t{1} << 60),
      "out_of_memory",
      "1152921504606846976 bytes");
  EXPECT_ERROR(
      make_host_array({-1, 2}, mx::float32),
      "internal",
      "an axis of -1");
  EXPECT_EQ(mx::get_active_memory(), before);
}

}  // namespace
}  // namespace mlxx
