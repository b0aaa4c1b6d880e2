#include "mlxx/cache/recurrent.h"

#include <gtest/gtest.h>

#include "mlxx/cache/composite.h"
#include "mlxx/cache/dense.h"
#include "tests/core/error_of.h"

namespace mlxx::cache {
namespace {

TEST(RecurrentCache, SlotsAreEmptyUntilTheyAreSet) {
  RecurrentCache cache(2);
  EXPECT_FALSE(cache.slot(0));
  EXPECT_TRUE(cache.state().empty());
  EXPECT_EQ(cache.nbytes(), 0u);
  cache.set(1, mx::ones({1, 3, 4}));
  cache.advance(5);
  EXPECT_FALSE(cache.slot(0));
  EXPECT_EQ(cache.slot(1)->shape(), (mx::Shape{1, 3, 4}));
  EXPECT_EQ(cache.state().size(), 1u);
  EXPECT_EQ(cache.nbytes(), 48u);
  EXPECT_EQ(cache.offset(), 5);
  EXPECT_FALSE(cache.mask(7));
  EXPECT_ERROR(cache.slot(2), "internal", "slot 2 of 2");
  EXPECT_ERROR(cache.set(-1, mx::array(1)), "internal", "slot -1 of 2");
}

TEST(RecurrentCache, NothingCanBeTakenOut) {
  RecurrentCache cache(1);
  cache.advance(3);
  EXPECT_FALSE(cache.is_trimmable());
  EXPECT_EQ(cache.trim(2), 0);
  EXPECT_EQ(cache.offset(), 3);
}

TEST(RecurrentCache, PaddingIsMaskedWherePiecesBegin) {
  RecurrentCache cache(1, {0, 3});
  bool first[] = {true, true, false, false};
  EXPECT_TRUE(
      mx::array_equal(*cache.mask(2), mx::array(first, {2, 2})).item<bool>());
  cache.advance(2);
  bool second[] = {true, true, true, false, true, true};
  EXPECT_TRUE(
      mx::array_equal(*cache.mask(3), mx::array(second, {2, 3})).item<bool>());
  EXPECT_ERROR(cache.set(0, mx::ones({3, 1})), "internal", "3 rows");
  EXPECT_ERROR(RecurrentCache(1, {-1}), "internal", "1 tokens less");
}

TEST(RecurrentCache, AForkGoesItsOwnWay) {
  RecurrentCache cache(1);
  cache.set(0, mx::ones({1, 2}));
  cache.advance(4);
  auto fork = cache.fork();
  fork->set(0, mx::zeros({1, 2}));
  fork->advance(1);
  EXPECT_EQ(cache.offset(), 4);
  EXPECT_EQ(fork->offset(), 5);
  EXPECT_EQ(mx::sum(*cache.slot(0)).item<float>(), 2.0f);
  EXPECT_EQ(mx::sum(*fork->slot(0)).item<float>(), 0.0f);
}

TEST(CompositeCache, AnswersForAllItsParts) {
  CacheList parts;
  parts.push_back(std::make_unique<RecurrentCache>(1));
  parts.push_back(std::make_unique<DenseCache>());
  CompositeCache cache(std::move(parts));
  auto& recurrent = cache_as<RecurrentCache>(cache.part(0));
  recurrent.set(0, mx::ones({1, 2}));
  recurrent.advance(3);
  mx::array keys = mx::ones({1, 1, 3, 4});
  cache_as<KVCache>(cache.part(1)).append(keys, keys);
  EXPECT_EQ(cache.offset(), 3);
  EXPECT_EQ(cache.state().size(), 3u);
  EXPECT_EQ(cache.nbytes(), cache.part(0).nbytes() + cache.part(1).nbytes());
  EXPECT_FALSE(cache.is_trimmable());
  // Not even the part that could: the two have to stay together.
  EXPECT_EQ(cache.trim(1), 0);
  EXPECT_EQ(cache.part(1).offset(), 3);
  EXPECT_ERROR(cache.part(2), "internal", "part 2 of 2");
  EXPECT_ERROR(CompositeCache(CacheList{}), "internal", "nothing");
  EXPECT_ERROR(cache_as<KVCache>(cache.part(0)), "internal", "another layer's");
}

TEST(CompositeCache, TrimsWhereEveryPartCan) {
  CacheList parts;
  for (int i = 0; i < 2; ++i) {
    parts.push_back(std::make_unique<DenseCache>());
  }
  CompositeCache cache(std::move(parts));
  mx::array keys = mx::ones({1, 1, 3, 4});
  for (int i = 0; i < 2; ++i) {
    cache_as<KVCache>(cache.part(i)).append(keys, keys);
  }
  EXPECT_TRUE(cache.is_trimmable());
  EXPECT_EQ(cache.trim(2), 2);
  EXPECT_EQ(cache.part(1).offset(), 1);
}

}  // namespace
}  // namespace mlxx::cache
