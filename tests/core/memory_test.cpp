#include "mlxx/core/memory.h"

#include <gtest/gtest.h>

#include "mlxx/core/device.h"

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

// MLX's own contract, which nothing here wraps.
TEST(Memory, SettersOfMlxReturnThePreviousLimit) {
  size_t first = mx::set_memory_limit(64 * kMiB);
  EXPECT_EQ(mx::get_memory_limit(), 64 * kMiB);
  EXPECT_EQ(mx::set_memory_limit(first), 64 * kMiB);
  EXPECT_EQ(mx::get_memory_limit(), first);
  size_t cache = mx::set_cache_limit(kMiB);
  EXPECT_EQ(mx::set_cache_limit(cache), kMiB);
  EXPECT_EQ(mx::set_cache_limit(cache), cache);
  if (backend() != Backend::metal) {
    EXPECT_EQ(mx::set_wired_limit(0), 0u);
  }
}

TEST(Memory, TheCacheLimitBoundsWhatIsKept) {
  clear_cache();
  size_t previous = mx::set_cache_limit(0);
  {
    mx::array a = eight_mib();
  }
  mx::synchronize();
  EXPECT_LT(memory_use().cache, kMiB);
  mx::set_cache_limit(previous);
}

// Why there is a MemoryBudget. If this fails, MLX has learnt it.
TEST(Memory, TheCpuBackendIgnoresTheMemoryLimit) {
  if (backend() != Backend::cpu) {
    GTEST_SKIP() << "not the CPU backend";
  }
  size_t previous = mx::set_memory_limit(kMiB);
  EXPECT_NO_THROW(eight_mib());
  mx::set_memory_limit(previous);
}

}  // namespace
}  // namespace mlxx
