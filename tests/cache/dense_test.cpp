#include "mlxx/cache/dense.h"

#include <random>

#include <gtest/gtest.h>

#include "mlxx/base/error.h"
#include "tests/cache/token_history.h"

namespace mlxx::cache {
namespace {

// A step that does not fit is added to the tokens held, not to the capacity.
TEST(DenseCache, GrowsByWholeStepsOf256) {
  DenseCache cache;
  EXPECT_EQ(cache.nbytes(), 0u);
  EXPECT_TRUE(cache.state().empty());
  size_t per_token = 2 * 2 * 2 * sizeof(float);
  for (auto [add, capacity] :
       {std::pair{1, 256}, {255, 256}, {1, 512}, {300, 769}}) {
    append_marked(cache, count_up(cache.offset(), add));
    EXPECT_EQ(cache.nbytes(), capacity * per_token) << cache.offset();
  }
}

TEST(DenseCache, RandomAppendsAndTrimsMatchAList) {
  std::mt19937 random(5);
  DenseCache cache;
  std::vector<int> expected;
  int next = 0;
  for (int round = 0; round < 150; ++round) {
    if (random() % 3 == 0) {
      int n = static_cast<int>(random() % 70);
      int dropped = cache.trim(n);
      EXPECT_EQ(dropped, std::min<int>(n, expected.size()));
      expected.resize(expected.size() - dropped);
    } else {
      auto tokens = count_up(next, 1 + random() % 60);
      next = (next + 60) % 900;
      expected.insert(expected.end(), tokens.begin(), tokens.end());
      ASSERT_EQ(tokens_in(append_marked(cache, tokens)), expected);
    }
    ASSERT_EQ(cache.offset(), static_cast<int>(expected.size()));
  }
}

TEST(DenseCache, MaskIsLeftToTheKernel) {
  DenseCache cache;
  EXPECT_EQ(cache.make_mask(1).mode, "");
  EXPECT_EQ(cache.make_mask(2).mode, "causal");
  EXPECT_FALSE(cache.make_mask(2).array);
}

TEST(DenseCache, RefusesWhatDoesNotFit) {
  DenseCache cache;
  append_marked(cache, {1, 2});
  EXPECT_THROW(append_marked(cache, {3}, /* rows= */ 2), Error);
  EXPECT_THROW(append_marked(cache, {3}, 1, /* heads= */ 3), Error);
  EXPECT_THROW(append_marked(cache, {}), Error);
  EXPECT_EQ(cache.offset(), 2);
}

// The bookkeeping is on the host: no graph may grow from step to step.
TEST(DenseCache, LongDecodingKeepsMemoryFlat) {
  DenseCache cache;
  append_marked(cache, count_up(0, 10));
  size_t early = 0;
  for (int step = 0; step < 2000; ++step) {
    cache.trim(1);
    append_marked(cache, {step % 900});
    mx::eval(cache.state());
    if (step == 100) {
      early = mx::get_active_memory();
    }
  }
  EXPECT_LE(mx::get_active_memory(), early + early / 10);
}

}  // namespace
}  // namespace mlxx::cache
