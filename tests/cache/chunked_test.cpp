#include "mlxx/cache/chunked.h"

#include <random>

#include <gtest/gtest.h>

#include "tests/cache/token_history.h"

namespace mlxx::cache {
namespace {

bool sees(const ChunkedCache& cache, int query, int key, int length) {
  auto mask = *cache.make_mask(length).array;
  int first = cache.key_positions(length).front();
  return mx::slice(
             mask,
             {query - cache.offset(), key - first},
             {query - cache.offset() + 1, key - first + 1})
      .item<bool>();
}

TEST(ChunkedCache, AQuerySeesItsOwnChunkOnly) {
  ChunkedCache cache(8);
  append_marked(cache, count_up(0, 6));
  EXPECT_EQ(cache.make_mask(5).array->shape(), (mx::Shape{5, 11}));
  EXPECT_TRUE(sees(cache, 6, 0, 5));
  EXPECT_TRUE(sees(cache, 7, 7, 5));
  EXPECT_FALSE(sees(cache, 7, 8, 5));
  EXPECT_FALSE(sees(cache, 8, 7, 5));
  EXPECT_TRUE(sees(cache, 9, 8, 5));
  EXPECT_FALSE(sees(cache, 9, 10, 5));
}

// Random pieces: what the cache returns is what its positions say, and the
// newest tokens are there.
TEST(ChunkedCache, KeepsTheNewestTokens) {
  std::mt19937 random(4);
  for (int length : {1, 8, 100, 300}) {
    ChunkedCache cache(length);
    for (int round = 0; round < 60; ++round) {
      int n = random() % 3 ? 1 : 1 + static_cast<int>(random() % 40);
      int before = cache.offset();
      auto expected = cache.key_positions(n);
      EXPECT_EQ(std::max(0, before - length), expected.front());
      auto mask = cache.make_mask(n).array;
      auto held = tokens_in(append_marked(cache, count_up(before, n)));
      ASSERT_EQ(held, expected);
      EXPECT_EQ(mask->shape(), (mx::Shape{n, static_cast<int>(held.size())}));
    }
    EXPECT_LE(cache.state()[0].shape(2), length + 40 + 2 * 256);
  }
}

TEST(ChunkedCache, TrimsToWhatTheNewestChunkStillNeeds) {
  ChunkedCache cache(8);
  append_marked(cache, count_up(0, 7));
  EXPECT_EQ(cache.trim(3), 3);
  EXPECT_EQ(cache.offset(), 4);
  EXPECT_EQ(tokens_in(append_marked(cache, {4})), count_up(0, 5));
  append_marked(cache, count_up(5, 7));  // 0 to 11: nothing dropped yet
  append_marked(cache, {12});            // drops 0 to 3
  EXPECT_EQ(cache.key_positions(1).front(), 5);
  // Chunk 1 begins at 8; of chunk 0 tokens are missing.
  EXPECT_EQ(cache.trim(100), 5);
  EXPECT_EQ(cache.offset(), 8);
  EXPECT_EQ(cache.trim(1), 0);
  auto held = tokens_in(append_marked(cache, {8}));
  EXPECT_EQ(held.back(), 8);
  EXPECT_EQ(held.front(), 4);
}

}  // namespace
}  // namespace mlxx::cache
