#include "mlxx/core/memory.h"

#include <gtest/gtest.h>

#include "mlxx/base/error.h"

namespace mlxx {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

mx::array eight_mib() {
  mx::array a = mx::zeros({2, 1 << 20}, mx::float32);
  mx::eval(a);
  return a;
}

TEST(Memory, CountsWhatLivesAndWhatWasFreed) {
  clear_cache();
  size_t before = memory_use().active;
  {
    mx::array a = eight_mib();
    EXPECT_GE(memory_use().active, before + 8 * kMiB);
  }
  mx::synchronize();
  EXPECT_LT(memory_use().active, before + kMiB);
  EXPECT_GE(memory_use().cache, 8 * kMiB);
  clear_cache();
  EXPECT_EQ(memory_use().cache, 0u);
}

TEST(Memory, PeakStartsAgainWhenReset) {
  {
    mx::array a = eight_mib();
  }
  mx::synchronize();
  EXPECT_GE(memory_use().peak, 8 * kMiB);
  reset_peak_memory();
  EXPECT_LT(memory_use().peak, 8 * kMiB);
}

TEST(MemoryBudget, RefusesWhatWouldNotFit) {
  size_t active = memory_use().active;
  MemoryBudget budget(active + 10 * kMiB);
  EXPECT_NO_THROW(budget.require("load", 9 * kMiB));
  mx::array a = eight_mib();
  try {
    budget.require("load", 9 * kMiB);
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::out_of_memory);
  }
  // No overflow, however large the wish.
  EXPECT_THROW(budget.require("load", SIZE_MAX), Error);
}

TEST(MemoryBudget, ZeroMeansNoLimit) {
  EXPECT_NO_THROW(MemoryBudget(0).require("load", SIZE_MAX));
}

TEST(ScopedWiredLimit, DoesNothingWhereNothingCanBeWired) {
  ScopedWiredLimit limit(kMiB);
  EXPECT_EQ(eight_mib().size(), size_t{2} << 20);
}

}  // namespace
}  // namespace mlxx
