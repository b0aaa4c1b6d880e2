#include "mlxx/cache/shared_copies.h"

#include <functional>

#include <gtest/gtest.h>

#include "mlxx/cache/blocks.h"
#include "mlxx/cache/chunked.h"
#include "mlxx/cache/composite.h"
#include "mlxx/cache/dense.h"
#include "mlxx/cache/padded.h"
#include "mlxx/cache/recurrent.h"
#include "mlxx/cache/rotating.h"
#include "tests/cache/token_history.h"
#include "tests/core/error_of.h"

namespace mlxx::cache {
namespace {

struct Kind {
  std::string name;
  std::function<std::unique_ptr<LayerCache>()> make;
  int droppable;  // of 100 tokens
  bool always;
};

std::vector<Kind> kinds() {
  auto rotating = [](int size) {
    return [size] { return std::make_unique<RotatingCache>(size, 2); };
  };
  return {
      {"dense", [] { return std::make_unique<DenseCache>(); }, 100, true},
      {"rotating", rotating(200), 100, false},
      {"rotated", rotating(40), 0, false},
      // Chunks of 40 from 60 on; the newest whole one begins at 80.
      {"chunked", [] { return std::make_unique<ChunkedCache>(40); }, 20, false},
      {"padded",
       [] {
         return std::make_unique<PaddedCache>(
             std::make_unique<DenseCache>(),
             std::vector<int>{2});
       },
       100,
       true},
      {"blocks",
       [] {
         return std::make_unique<BlocksCache>(std::make_shared<BlockPool>());
       },
       100,
       true},
      {"composite",
       [] {
         CacheList parts;
         parts.push_back(std::make_unique<DenseCache>());
         parts.push_back(std::make_unique<ChunkedCache>(40));
         return std::make_unique<CompositeCache>(std::move(parts));
       },
       20,
       false},
  };
}

// What the newest append() shows of each part.
std::vector<int> feed(LayerCache& cache, const std::vector<int>& tokens) {
  if (auto* composite = dynamic_cast<CompositeCache*>(&cache)) {
    auto seen = feed(composite->part(0), tokens);
    auto more = feed(composite->part(1), tokens);
    seen.insert(seen.end(), more.begin(), more.end());
    return seen;
  }
  auto& kv = cache_as<KVCache>(cache);
  auto seen = tokens_in(append_marked(kv, tokens));
  mx::eval(cache.state());
  return seen;
}

void feed_all(LayerCache& cache, int from, int to) {
  for (int t = from; t < to; t += 5) {
    feed(cache, count_up(t, std::min(5, to - t)));
  }
}

TEST(SharedCopies, GoTheirOwnWay) {
  for (const Kind& kind : kinds()) {
    SCOPED_TRACE(kind.name);
    auto row = kind.make();
    feed_all(*row, 0, 100);
    EXPECT_EQ(row->droppable(), kind.droppable);
    EXPECT_EQ(row->is_always_trimmable(), kind.always);
    std::vector<int> lengths{100, 100 - kind.droppable / 2};
    for (int length : lengths) {
      auto kept = row->shared_copy(length);
      auto expected = kind.make();
      feed_all(*expected, 0, 100);
      expected->trim(100 - length);
      // The original, the copy, and a copy of the copy go on; the kept one
      // stays as it is.
      auto original = row->shared_copy(100);
      auto second = kept->shared_copy(length);
      auto third = kept->shared_copy(length);
      for (int t = 0; t < 70; ++t) {
        feed(*original, {700 + t});
        feed(*third, {500 + t});
        EXPECT_EQ(feed(*second, {300 + t}), feed(*expected, {300 + t})) << t;
      }
      EXPECT_EQ(kept->offset(), length);
      auto fresh = kind.make();
      feed_all(*fresh, 0, 100);
      fresh->trim(100 - length);
      EXPECT_EQ(feed(*kept, {900}), feed(*fresh, {900}));
    }
    EXPECT_ERROR(row->shared_copy(101), "internal", "101");
    if (kind.droppable < 100) {
      EXPECT_ERROR(row->shared_copy(99 - kind.droppable), "internal", "100");
    }
  }
}

TEST(SharedCopies, ShareMemoryUntilOneWrites) {
  auto row = std::make_unique<DenseCache>();
  feed_all(*row, 0, 100);
  auto copy = row->shared_copy(100);
  auto handles = [](const LayerCache& cache) {
    std::vector<const void*> all;
    for (const auto& memory : cache.memory()) {
      all.push_back(memory.handle.get());
    }
    return all;
  };
  EXPECT_EQ(handles(*copy), handles(*row));
  auto before = handles(*copy);
  feed(*row, {1});
  EXPECT_EQ(handles(*copy), before);
  EXPECT_NE(handles(*row), before);
  // The row is its only owner now and writes in place.
  auto own = handles(*row);
  feed(*row, {2});
  EXPECT_EQ(handles(*row), own);
}

TEST(SharedCopies, OfAShortStartHoldNoMemoryOfTheRest) {
  auto row = std::make_unique<DenseCache>();
  feed_all(*row, 0, 1000);
  CacheList copy;
  copy.push_back(row->shared_copy(100));
  start_evaluation(copy);
  size_t bytes = 0;
  for (const auto& held : memory(copy)) {
    bytes += held.bytes;
  }
  // 356 of 1024 tokens, in buffers that MLX's pool may have had twice as large.
  EXPECT_LT(bytes, row->nbytes() * 3 / 4);
  auto expected = count_up(0, 100);
  expected.push_back(7);
  EXPECT_EQ(feed(*copy[0], {7}), expected);
  auto all = count_up(0, 1000);
  all.push_back(8);
  EXPECT_EQ(feed(*row, {8}), all);
}

TEST(SharedCopies, OfAStateExistOnlyWhereItIs) {
  CacheList caches;
  caches.push_back(std::make_unique<RecurrentCache>(1));
  auto& state = cache_as<RecurrentCache>(*caches[0]);
  // A small part of a large array is copied out of it.
  mx::array large = mx::ones({1, 100'000});
  mx::array part = mx::slice(large, {0, 0}, {1, 8});
  mx::eval(part);
  state.set(0, part);
  state.advance(10);
  EXPECT_EQ(droppable(caches), 0);
  EXPECT_FALSE(is_always_trimmable(caches));
  EXPECT_ERROR(shared_copies(caches, 9), "internal", "after 10 tokens");
  CacheList copy = shared_copies(caches);
  start_evaluation(copy);
  auto held = memory(copy);
  ASSERT_EQ(held.size(), 1u);
  EXPECT_LT(held[0].bytes, 20'000u);
  state.set(0, mx::zeros({1, 8}));
  state.advance(1);
  auto& kept = cache_as<RecurrentCache>(*copy[0]);
  EXPECT_EQ(mx::sum(*kept.slot(0)).item<float>(), 8.0f);
  EXPECT_EQ(tokens_in(copy), 10);
  caches.push_back(std::make_unique<DenseCache>());
  EXPECT_ERROR(tokens_in(caches), "internal", "11 tokens");
}

}  // namespace
}  // namespace mlxx::cache
