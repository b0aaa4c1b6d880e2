#include "mlxx/cache/blocks.h"

#include <memory>
#include <random>

#include <gtest/gtest.h>

#include "mlxx/base/error.h"
#include "tests/cache/token_history.h"

namespace mlxx::cache {
namespace {

TEST(BlocksCache, RandomForksAppendsAndTrimsMatchLists) {
  struct Branch {
    std::unique_ptr<BlocksCache> cache;
    std::vector<int> tokens;
  };
  std::mt19937 random(3);
  auto pool = std::make_shared<BlockPool>();
  std::vector<Branch> branches;
  branches.push_back({std::make_unique<BlocksCache>(pool), {}});
  for (int round = 0; round < 400; ++round) {
    size_t index = random() % branches.size();
    Branch& branch = branches[index];
    switch (random() % 5) {
      case 0:
        if (branches.size() < 6) {
          Branch copy{branch.cache->fork(), branch.tokens};
          branches.push_back(std::move(copy));
        }
        break;
      case 1:
        if (branches.size() > 1) {
          branches.erase(branches.begin() + index);
        }
        break;
      case 2: {
        int dropped = branch.cache->trim(static_cast<int>(random() % 90));
        branch.tokens.resize(branch.tokens.size() - dropped);
        break;
      }
      default: {
        auto more =
            count_up(static_cast<int>(random() % 800), 1 + random() % 80);
        branch.tokens.insert(branch.tokens.end(), more.begin(), more.end());
        ASSERT_EQ(tokens_in(append_marked(*branch.cache, more)), branch.tokens);
      }
    }
    for (const auto& b : branches) {
      ASSERT_EQ(b.cache->offset(), static_cast<int>(b.tokens.size()));
    }
  }
  // Writing to one branch changed no other.
  for (auto& b : branches) {
    b.tokens.push_back(7);
    EXPECT_EQ(tokens_in(append_marked(*b.cache, {7})), b.tokens);
  }
  branches.clear();
  EXPECT_EQ(pool->used(), 0);
}

TEST(BlocksCache, ForksShareUntilOneWrites) {
  auto pool = std::make_shared<BlockPool>();
  BlocksCache cache(pool);
  append_marked(cache, count_up(0, 150));  // blocks of 64, 64 and 22
  EXPECT_EQ(pool->used(), 3);
  auto fork = cache.fork();
  EXPECT_EQ(pool->used(), 3);
  append_marked(*fork, {500});
  EXPECT_EQ(pool->used(), 4);  // the last block was copied, the others not
  append_marked(cache, {600});
  EXPECT_EQ(pool->used(), 4);  // the original is its only owner again
  fork.reset();
  EXPECT_EQ(pool->used(), 3);
}

TEST(BlocksCache, RowsOfABatchHaveTheirOwnBlocks) {
  auto pool = std::make_shared<BlockPool>();
  BlocksCache cache(pool);
  auto view = append_marked(cache, count_up(0, 70), /* rows= */ 3);
  EXPECT_EQ(pool->used(), 6);
  for (int row = 0; row < 3; ++row) {
    EXPECT_EQ(tokens_in(view, row), count_up(0, 70)) << row;
  }
  EXPECT_THROW(append_marked(cache, {1}, /* rows= */ 2), Error);
}

TEST(BlocksCache, TrimGivesWholeBlocksBack) {
  auto pool = std::make_shared<BlockPool>();
  BlocksCache cache(pool);
  append_marked(cache, count_up(0, 129));
  size_t three = cache.nbytes();
  EXPECT_EQ(cache.trim(1), 1);
  EXPECT_EQ(pool->used(), 2);
  EXPECT_EQ(cache.nbytes(), three / 3 * 2);
  EXPECT_EQ(cache.trim(1000), 128);
  EXPECT_EQ(pool->used(), 0);
}

TEST(BlockPool, RefusesDoubleRelease) {
  BlockPool pool;
  mx::array keys = marked({1}, 1, 2);
  int block = pool.allocate(keys, keys);
  pool.release(block);
  EXPECT_THROW(pool.release(block), Error);
  EXPECT_THROW(pool.retain(block), Error);
}

TEST(BlocksCache, RefusesAnotherShape) {
  auto pool = std::make_shared<BlockPool>();
  BlocksCache cache(pool);
  append_marked(cache, {1});
  EXPECT_THROW(append_marked(cache, {2}, 1, /* heads= */ 3), Error);
}

}  // namespace
}  // namespace mlxx::cache
