#include "mlxx/core/wired_limit.h"

#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "mlxx/base/log.h"

namespace mlxx {
namespace {

// Writes down what it is asked.
class FakeDevice : public WiredMemory {
 public:
  explicit FakeDevice(size_t working_set) : working_set_(working_set) {}

  size_t working_set() const override {
    return working_set_;
  }
  size_t set_limit(size_t bytes) override {
    if (fail_set) {
      throw std::runtime_error("limit refused");
    }
    calls.push_back("set " + std::to_string(bytes));
    return std::exchange(limit, bytes);
  }
  void synchronize() override {
    calls.push_back("synchronize");
    if (fail_synchronize) {
      throw std::runtime_error("device lost");
    }
  }

  size_t limit = 7;
  std::vector<std::string> calls;
  bool fail_set = false;
  bool fail_synchronize = false;

 private:
  size_t working_set_;
};

using Calls = std::vector<std::string>;
const Calls kWholeScope{"set 1000", "run", "synchronize", "set 7"};

TEST(ScopedWiredLimit, SetRunSynchronizeRestore) {
  FakeDevice device(1000);
  int result = with_wired_limit(
      900,
      [&] {
        device.calls.push_back("run");
        EXPECT_EQ(device.limit, 1000u);
        return 5;
      },
      device);
  EXPECT_EQ(result, 5);
  EXPECT_EQ(device.calls, kWholeScope);
}

TEST(ScopedWiredLimit, RaisedOnlyAboveThreeQuartersOfTheWorkingSet) {
  for (auto [weights, raised] :
       {std::pair<size_t, bool>{0, false},
        {750, false},
        {751, true},
        {1000, true},
        {SIZE_MAX, true}}) {
    FakeDevice device(1000);
    {
      ScopedWiredLimit scope(weights, device);
      EXPECT_EQ(scope.is_raised(), raised) << weights;
      // Never above what the device recommends.
      EXPECT_EQ(device.limit, raised ? 1000u : 7u) << weights;
    }
    EXPECT_EQ(device.limit, 7u) << weights;
    EXPECT_EQ(device.calls.empty(), !raised) << weights;
  }
}

TEST(ScopedWiredLimit, WithoutAWorkingSetNothingHappens) {
  FakeDevice device(0);
  with_wired_limit(SIZE_MAX, [] {}, device);
  EXPECT_TRUE(device.calls.empty());
}

TEST(ScopedWiredLimit, AnExceptionComesOutAfterTheLimitIsRestored) {
  FakeDevice device(1000);
  try {
    with_wired_limit(
        900,
        [&] {
          device.calls.push_back("run");
          throw std::logic_error("mine");
        },
        device);
    ADD_FAILURE() << "nothing came out";
  } catch (const std::logic_error& error) {
    EXPECT_STREQ(error.what(), "mine");
  }
  EXPECT_EQ(device.calls, kWholeScope);
}

TEST(ScopedWiredLimit, AFailedSynchronizeComesOutAfterTheLimitIsRestored) {
  FakeDevice device(1000);
  device.fail_synchronize = true;
  EXPECT_THROW(
      with_wired_limit(
          900,
          [&] { device.calls.push_back("run"); },
          device),
      std::runtime_error);
  EXPECT_EQ(device.calls, kWholeScope);
}

TEST(ScopedWiredLimit, OfTwoErrorsTheBodysComesOutAndTheOtherIsLogged) {
  FakeDevice device(1000);
  device.fail_synchronize = true;
  std::string logged;
  set_log_sink([&](LogLevel, std::string_view line) { logged = line; });
  EXPECT_THROW(
      with_wired_limit(
          900,
          [] { throw std::logic_error("mine"); },
          device),
      std::logic_error);
  set_log_sink({});
  EXPECT_EQ(device.limit, 7u);
  EXPECT_NE(logged.find("device lost"), std::string::npos) << logged;
}

TEST(ScopedWiredLimit, ALimitThatCannotBeSetChangesNothing) {
  FakeDevice device(1000);
  device.fail_set = true;
  EXPECT_THROW(ScopedWiredLimit(900, device), std::runtime_error);
  device.fail_set = false;
  EXPECT_EQ(device.limit, 7u);
  // The next scope is not taken for a nested one.
  with_wired_limit(900, [&] { EXPECT_EQ(device.limit, 1000u); }, device);
  EXPECT_EQ(device.limit, 7u);
}

TEST(ScopedWiredLimit, NestedScopesRestoreOnceAtTheEnd) {
  FakeDevice device(1000);
  with_wired_limit(
      900,
      [&] {
        with_wired_limit(800, [] {}, device);
        EXPECT_EQ(device.limit, 1000u);
        // Too small to need one.
        with_wired_limit(10, [] {}, device);
        EXPECT_EQ(device.limit, 1000u);
        EXPECT_THROW(
            with_wired_limit(
                800,
                [] { throw std::logic_error("x"); },
                device),
            std::logic_error);
        EXPECT_EQ(device.limit, 1000u);
      },
      device);
  EXPECT_EQ(device.limit, 7u);
}

TEST(ScopedWiredLimit, ScopesThatOverlapDoNotLeaveTheLimitRaised) {
  FakeDevice device(1000);
  auto first = std::make_unique<ScopedWiredLimit>(900, device);
  auto second = std::make_unique<ScopedWiredLimit>(900, device);
  first.reset();
  EXPECT_EQ(device.limit, 1000u);
  second.reset();
  EXPECT_EQ(device.limit, 7u);
}

TEST(ScopedWiredLimit, FinishEndsTheScopeOnce) {
  FakeDevice device(1000);
  {
    ScopedWiredLimit scope(900, device);
    scope.finish();
    EXPECT_EQ(device.limit, 7u);
    scope.finish();
  }
  EXPECT_EQ(device.calls, (Calls{"set 1000", "synchronize", "set 7"}));
}

// Only counts, since its calls come from several threads.
class CountingDevice : public WiredMemory {
 public:
  size_t working_set() const override {
    return 1000;
  }
  size_t set_limit(size_t bytes) override {
    return std::exchange(limit, bytes);
  }
  void synchronize() override {}
  size_t limit = 7;
};

TEST(ScopedWiredLimit, ManyThreads) {
  CountingDevice device;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 2000; ++i) {
        ScopedWiredLimit scope(900, device);
      }
    });
  }
  for (auto& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(device.limit, 7u);
}

TEST(ScopedWiredLimit, TheRealOneDoesNothingWhereNothingCanBeWired) {
  if (wired_memory().working_set() > 0) {
    GTEST_SKIP() << "this device can wire memory";
  }
  ScopedWiredLimit scope(SIZE_MAX);
  EXPECT_FALSE(scope.is_raised());
}

}  // namespace
}  // namespace mlxx
