#include "mlxx/core/device.h"

#include <gtest/gtest.h>

namespace mlxx {
namespace {

constexpr uint64_t kGiB = uint64_t{1} << 30;
const HostMemory kHost{
    .total_bytes = 100 * kGiB,
    .available_bytes = 60 * kGiB,
    .limit_bytes = 0};

TEST(Device, OnTheCpuTheContainersLimitCounts) {
  DeviceProperties properties{
      {"device_name", std::string("Some CPU")},
      {"architecture", std::string("arm64")}};
  auto info = describe_device(Backend::cpu, properties, kHost);
  EXPECT_EQ(info.name, "Some CPU");
  EXPECT_EQ(info.architecture, "arm64");
  EXPECT_EQ(info.total_bytes, 100 * kGiB);
  EXPECT_EQ(info.available_bytes, 60 * kGiB);
  EXPECT_EQ(info.working_set_bytes, 80 * kGiB);

  HostMemory limited = kHost;
  limited.limit_bytes = 10 * kGiB;
  limited.available_bytes = 3 * kGiB;
  info = describe_device(Backend::cpu, properties, limited);
  EXPECT_EQ(info.available_bytes, 3 * kGiB);
  EXPECT_EQ(info.working_set_bytes, 8 * kGiB);
}

TEST(Device, MetalSaysItsOwnWorkingSet) {
  DeviceProperties properties{
      {"device_name", std::string("Apple M3 Max")},
      {"architecture", std::string("applegpu_g15s")},
      {"memory_size", size_t{64 * kGiB}},
      {"max_recommended_working_set_size", size_t{48 * kGiB}}};
  auto info = describe_device(Backend::metal, properties, kHost);
  EXPECT_EQ(info.architecture, "applegpu_g15s");
  EXPECT_EQ(info.total_bytes, 64 * kGiB);
  EXPECT_EQ(info.available_bytes, 60 * kGiB);
  EXPECT_EQ(info.working_set_bytes, 48 * kGiB);
}

TEST(Device, CudaSaysItsOwnMemory) {
  DeviceProperties properties{
      {"architecture", std::string("sm_90")},
      {"total_memory", size_t{140 * kGiB}},
      {"free_memory", size_t{20 * kGiB}}};
  auto info = describe_device(Backend::cuda, properties, kHost);
  EXPECT_EQ(info.total_bytes, 140 * kGiB);
  EXPECT_EQ(info.available_bytes, 20 * kGiB);
  EXPECT_EQ(info.working_set_bytes, 133 * kGiB);
}

TEST(Device, WhatIsNotSaidIsZero) {
  DeviceProperties wrong{
      {"architecture", size_t{9}},
      {"total_memory", std::string("much")},
      {"free_memory", size_t{5}},
      {"max_recommended_working_set_size", std::string()}};
  for (auto backend : {Backend::cpu, Backend::metal, Backend::cuda}) {
    for (const auto& properties : {DeviceProperties{}, wrong}) {
      auto info = describe_device(backend, properties, {});
      EXPECT_EQ(info.backend, backend);
      EXPECT_EQ(info.architecture, "");
      EXPECT_EQ(info.total_bytes, 0u);
      EXPECT_EQ(info.available_bytes, 0u);
      EXPECT_EQ(info.working_set_bytes, 0u);
    }
  }
}

TEST(Device, TheDefaultDeviceOfThisMachine) {
  auto info = describe_device();
  EXPECT_EQ(info.backend, backend());
  EXPECT_FALSE(info.architecture.empty());
  EXPECT_GT(info.available_bytes, 0u);
  EXPECT_LE(info.available_bytes, info.total_bytes);
  EXPECT_GT(info.working_set_bytes, 0u);
  EXPECT_LE(info.working_set_bytes, info.total_bytes);
}

}  // namespace
}  // namespace mlxx
