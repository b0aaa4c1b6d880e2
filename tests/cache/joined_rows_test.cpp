#include "mlxx/cache/joined_rows.h"

#include <gtest/gtest.h>

#include "mlxx/cache/chunked.h"
#include "mlxx/cache/composite.h"
#include "mlxx/cache/dense.h"
#include "mlxx/cache/recurrent.h"
#include "tests/kernels/relative_error.h"

namespace mlxx::cache {
namespace {

CacheList state_of(float value, bool filled = true) {
  auto cache = std::make_unique<RecurrentCache>(2);
  if (filled) {
    cache->set(0, mx::full({1, 300}, value));
    cache->advance(1);
  }
  CacheList caches;
  caches.push_back(std::move(cache));
  return caches;
}

RecurrentCache& recurrent(CacheList& caches) {
  return cache_as<RecurrentCache>(*caches.front());
}

// A layer that adds one to the state in slot 0.
void step(const std::vector<CacheList*>& rows) {
  JoinedRows joined(rows);
  auto& all = recurrent(joined.caches());
  all.set(0, mx::add(*all.slot(0), mx::array(1.0f)));
  all.advance(1);
  joined.give_rows();
}

mx::array threes(float value) {
  return mx::full({1, 300}, value);
}

TEST(JoinedRows, StatesGoOnInWhateverCompany) {
  CacheList a = state_of(10);
  CacheList b = state_of(20);
  CacheList c = state_of(30);
  step({&a, &b});
  step({&a, &b});
  step({&b, &c});
  step({&c, &b, &a});
  EXPECT_TRUE(same_bits(*recurrent(a).slot(0), threes(13)));
  EXPECT_TRUE(same_bits(*recurrent(b).slot(0), threes(24)));
  EXPECT_TRUE(same_bits(*recurrent(c).slot(0), threes(32)));
  EXPECT_FALSE(recurrent(a).slot(1));
  EXPECT_EQ(a.front()->offset(), 4);
  EXPECT_EQ(c.front()->offset(), 3);
}

TEST(JoinedRows, ARowWithoutAStateBeginsWithZeros) {
  CacheList a = state_of(10);
  CacheList b = state_of(0, false);
  step({&b, &a});
  EXPECT_TRUE(same_bits(*recurrent(a).slot(0), threes(11)));
  EXPECT_TRUE(same_bits(*recurrent(b).slot(0), threes(1)));
}

// Between the steps of rows that stay together nothing is copied.
TEST(JoinedRows, RowsThatStayTogetherKeepOneArray) {
  CacheList a = state_of(10);
  CacheList b = state_of(20);
  step({&a, &b});
  std::vector<CacheList*> rows{&a, &b};
  mx::array whole = a.front()->state()[0];
  EXPECT_EQ(whole.shape(), (mx::Shape{2, 300}));
  {
    JoinedRows joined(rows);
    EXPECT_EQ(recurrent(joined.caches()).slot(0)->id(), whole.id());
  }
  std::vector<CacheList*> other{&b, &a};
  JoinedRows joined(other);
  mx::array swapped = *recurrent(joined.caches()).slot(0);
  EXPECT_NE(swapped.id(), whole.id());
  EXPECT_TRUE(same_bits(swapped, mx::concatenate({threes(21), threes(11)}, 0)));
}

TEST(JoinedRows, WhatIsKeptOfARowDoesNotHoldTheBatch) {
  CacheList a = state_of(10);
  CacheList b = state_of(20);
  step({&a, &b});
  EXPECT_EQ(a.front()->nbytes(), threes(0).nbytes());
  auto fork = recurrent(b).fork();
  auto stored = b.front()->store();
  ASSERT_EQ(stored.arrays.size(), 1u);
  for (mx::array kept : {*fork->slot(0), stored.arrays[0]}) {
    mx::eval(kept);
    // MLX's pool may give a buffer that is larger than asked for, but not one
    // of twice the size.
    EXPECT_LT(kept.buffer_size(), 2 * 300 * sizeof(float));
    EXPECT_TRUE(same_bits(kept, threes(21)));
  }
  // Neither sees what the row is given later.
  step({&b});
  EXPECT_TRUE(same_bits(*fork->slot(0), threes(21)));
  EXPECT_TRUE(same_bits(*recurrent(b).slot(0), threes(22)));
}

CacheList tokens_of(std::unique_ptr<KVCache> cache, int length) {
  if (length > 0) {
    cache->append(normal({1, 2, length, 4}, 1), normal({1, 2, length, 4}, 2));
  }
  CacheList parts;
  parts.push_back(std::move(cache));
  CacheList caches;
  caches.push_back(std::make_unique<CompositeCache>(std::move(parts)));
  return caches;
}

KVCache& attention(CacheList& caches) {
  return cache_as<KVCache>(cache_as<CompositeCache>(*caches.front()).part(0));
}

TEST(JoinedRows, TokensGoToEachRowsOwnCache) {
  CacheList a = tokens_of(std::make_unique<DenseCache>(), 5);
  CacheList b = tokens_of(std::make_unique<DenseCache>(), 0);
  std::vector<CacheList*> rows{&a, &b};
  JoinedRows joined(rows);
  KVCache& all = attention(joined.caches());
  EXPECT_EQ(all.offset(), 5);
  auto position = all.position();
  EXPECT_EQ(position.number, 5);
  EXPECT_TRUE(same_bits(*position.array, mx::array({5, 0}, {2})));
  mx::array keys = normal({2, 2, 1, 4}, 3);
  KVView view = all.append(keys, keys);
  const auto& parts = std::get<kernels::RowsView>(view).rows;
  ASSERT_EQ(parts.size(), 2u);
  EXPECT_EQ(parts[0].tokens.keys.shape(2), 6);
  EXPECT_TRUE(same_bits(
      parts[1].tokens.keys,
      mx::slice(keys, {1, 0, 0, 0}, {2, 2, 1, 4})));
  EXPECT_EQ(attention(a).offset(), 6);
  EXPECT_EQ(attention(b).offset(), 1);
}

TEST(JoinedRows, MasksAreThoseOfEachRow) {
  CacheList a = tokens_of(std::make_unique<ChunkedCache>(4), 6);
  CacheList b = tokens_of(std::make_unique<ChunkedCache>(4), 1);
  std::vector<CacheList*> rows{&a, &b};
  JoinedRows joined(rows);
  KVCache& all = attention(joined.caches());
  EXPECT_FALSE(all.make_mask(1).array);
  mx::array one = normal({2, 2, 1, 4}, 3);
  KVView view = all.append(one, one);
  for (const auto& row : std::get<kernels::RowsView>(view).rows) {
    ASSERT_TRUE(row.mask);
    EXPECT_EQ(row.mask->shape(-1), row.tokens.keys.shape(2));
  }
}

TEST(JoinedRows, RefusesRowsThatDoNotBelongTogether) {
  CacheList a = state_of(1);
  CacheList kv = tokens_of(std::make_unique<DenseCache>(), 2);
  CacheList none;
  auto join = [](std::vector<CacheList*> rows) { JoinedRows joined(rows); };
  EXPECT_THROW(join({}), Error);
  EXPECT_THROW(join({&a, &none}), Error);
  EXPECT_THROW(join({&a, &kv}), Error);
  EXPECT_THROW(join({&kv, &a}), Error);

  CacheList b = tokens_of(std::make_unique<DenseCache>(), 3);
  std::vector<CacheList*> rows{&kv, &b};
  JoinedRows joined(rows);
  KVCache& all = attention(joined.caches());
  mx::array two = normal({2, 2, 2, 4}, 3);
  EXPECT_THROW(all.append(two, two), Error);
  mx::array three = normal({3, 2, 1, 4}, 3);
  EXPECT_THROW(all.append(three, three), Error);
  EXPECT_EQ(attention(kv).offset(), 2);
}

}  // namespace
}  // namespace mlxx::cache
