#include "mlxx/core/memory_budget.h"

#include <atomic>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "tests/core/error_of.h"

namespace mlxx {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

// A budget of `limit` bytes over memory that the test decides.
class MemoryBudgetTest : public ::testing::Test {
 protected:
  MemoryBudget budget(size_t limit) {
    return MemoryBudget(limit, [this] { return active_; });
  }
  size_t active_ = 0;
};

TEST_F(MemoryBudgetTest, RefusesWhatWouldNotFitNamingPlaceAndNumbers) {
  active_ = 30;
  auto budget = this->budget(100);
  EXPECT_NO_THROW(budget.require("load", 70));
  EXPECT_ERROR(
      budget.require("load", 71),
      "out_of_memory",
      "[load] 71 bytes more do not fit: 30 of 100 are in use");
  // No overflow, however large the wish.
  EXPECT_ERROR(budget.require("load", SIZE_MAX), "out_of_memory", "of 100");
  active_ = 200;
  EXPECT_EQ(budget.available(), 0u);
  EXPECT_NO_THROW(budget.require("load", 0));
  EXPECT_ERROR(budget.require("load", 1), "out_of_memory", "200 of 100");
}

TEST_F(MemoryBudgetTest, ReservationsCountUntilTheyDie) {
  auto budget = this->budget(100);
  {
    auto first = budget.reserve("a", 60);
    EXPECT_EQ(first.bytes(), 60u);
    EXPECT_EQ(budget.reserved(), 60u);
    EXPECT_EQ(budget.available(), 40u);
    EXPECT_ERROR(budget.reserve("b", 41), "out_of_memory", "60 of 100");
    auto second = budget.reserve("b", 40);
    EXPECT_EQ(budget.available(), 0u);
  }
  EXPECT_EQ(budget.reserved(), 0u);
  EXPECT_EQ(budget.available(), 100u);
}

TEST_F(MemoryBudgetTest, GivenBackWhenAnExceptionPasses) {
  auto budget = this->budget(100);
  try {
    auto kept = budget.reserve("a", 60);
    budget.require("b", 60);
    ADD_FAILURE() << "accepted";
  } catch (const Error&) {
  }
  EXPECT_EQ(budget.available(), 100u);
}

TEST_F(MemoryBudgetTest, WhatHasBeenAllocatedIsNotCountedTwice) {
  auto budget = this->budget(100);
  auto kept = budget.reserve("load", 60);
  active_ = 20;
  EXPECT_EQ(budget.available(), 20u);
  kept.allocated(20);
  EXPECT_EQ(budget.available(), 40u);
  active_ = 60;
  kept.allocated(1000);  // at most what is left
  EXPECT_EQ(budget.available(), 40u);
  EXPECT_EQ(budget.reserved(), 60u);
  kept.release();
  EXPECT_EQ(budget.reserved(), 0u);
  EXPECT_EQ(budget.available(), 40u);
  kept.release();
  kept.allocated(5);
  EXPECT_EQ(budget.available(), 40u);
}

TEST_F(MemoryBudgetTest, ReservationsMoveAndOutliveTheBudget) {
  MemoryReservation kept;
  EXPECT_EQ(kept.bytes(), 0u);
  {
    auto budget = this->budget(100);
    auto first = budget.reserve("a", 10);
    MemoryReservation second = std::move(first);
    first.release();  // NOLINT: a moved-from one holds nothing
    EXPECT_EQ(budget.reserved(), 10u);
    kept = budget.reserve("b", 20);
    EXPECT_EQ(budget.reserved(), 30u);
    kept = std::move(second);
    EXPECT_EQ(budget.reserved(), 10u);
  }
  EXPECT_EQ(kept.bytes(), 10u);
}

TEST_F(MemoryBudgetTest, NestedBudgetsKeepBothLimits) {
  auto whole = budget(100);
  auto part = whole.nested(50);
  auto rest = whole.nested(0);
  active_ = 10;
  // Only what is reserved in it counts against a part.
  EXPECT_EQ(part.available(), 50u);
  auto kept = part.reserve("cache", 40);
  EXPECT_EQ(part.reserved(), 40u);
  EXPECT_EQ(whole.reserved(), 40u);
  EXPECT_EQ(rest.reserved(), 0u);
  EXPECT_ERROR(
      part.reserve("cache", 11),
      "out_of_memory",
      "40 of 50 are in use in this part of the memory");
  auto other = rest.reserve("load", 45);
  EXPECT_EQ(whole.available(), 5u);
  EXPECT_EQ(part.available(), 5u);
  EXPECT_ERROR(
      part.reserve("cache", 6),
      "out_of_memory",
      "95 of 100 are in use");
  other.release();
  EXPECT_EQ(part.available(), 10u);
  // What the part holds stays its own once it is allocated.
  active_ = 50;
  kept.allocated(40);
  EXPECT_EQ(part.available(), 10u);
  EXPECT_EQ(whole.available(), 50u);
  auto inner = part.nested(5);
  EXPECT_EQ(inner.available(), 5u);
  auto deep = inner.reserve("x", 5);
  EXPECT_EQ(part.available(), 5u);
  EXPECT_EQ(whole.reserved(), 45u);
}

TEST_F(MemoryBudgetTest, ZeroMeansNoLimit) {
  auto budget = this->budget(0);
  EXPECT_NO_THROW(budget.require("load", SIZE_MAX));
  EXPECT_EQ(budget.available(), SIZE_MAX);
  active_ = 10;
  auto all = budget.reserve("a", SIZE_MAX);
  EXPECT_ERROR(budget.reserve("b", 1), "out_of_memory", "are reserved");
  auto part = budget.nested(8);
  EXPECT_ERROR(part.reserve("c", 9), "out_of_memory", "0 of 8");
}

TEST(MemoryBudget, CountsWhatMlxHolds) {
  MemoryBudget budget(mx::get_active_memory() + 10 * kMiB);
  auto kept = budget.reserve("load", 8 * kMiB);
  EXPECT_ERROR(budget.require("other", 3 * kMiB), "out_of_memory", "[other]");
  {
    mx::array a = mx::zeros({2, 1 << 20}, mx::float32);
    a.eval();
    kept.allocated(a.nbytes());
    EXPECT_ERROR(budget.require("other", 3 * kMiB), "out_of_memory", "[other]");
    EXPECT_NO_THROW(budget.require("other", kMiB));
  }
  kept.release();
  mx::synchronize();
  EXPECT_NO_THROW(budget.require("other", 9 * kMiB));
}

TEST(MemoryBudget, ManyThreads) {
  std::atomic<size_t> held = 0;
  std::atomic<bool> exceeded = false;
  MemoryBudget budget(100, [] { return size_t{0}; });
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      auto part = budget.nested(60);
      for (int i = 0; i < 2000; ++i) {
        try {
          auto kept = part.reserve("t", static_cast<size_t>(20 + t));
          exceeded = exceeded || (held += kept.bytes()) > 100;
          std::this_thread::yield();
          held -= kept.bytes();
        } catch (const Error&) {  // the others hold too much
        }
      }
    });
  }
  for (auto& thread : threads) {
    thread.join();
  }
  EXPECT_FALSE(exceeded);
  EXPECT_EQ(budget.reserved(), 0u);
  EXPECT_EQ(budget.available(), 100u);
}

}  // namespace
}  // namespace mlxx
