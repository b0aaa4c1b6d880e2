#include "mlxx/engine/prefix_cache.h"

#include <random>

#include <gtest/gtest.h>

#include "mlxx/cache/composite.h"
#include "mlxx/cache/dense.h"
#include "mlxx/cache/padded.h"
#include "mlxx/cache/recurrent.h"
#include "mlxx/cache/shared_copies.h"
#include "tests/cache/token_history.h"

namespace mlxx::engine {
namespace {

using cache::append_marked;
using cache::cache_as;
using cache::CacheList;
using cache::DenseCache;
using cache::RecurrentCache;
using cache::tokens_in;
using Tokens = std::vector<int32_t>;

Tokens count_up(int from, int n) {
  return cache::count_up(from, n);
}

Tokens operator+(Tokens a, const Tokens& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// Two layers whose keys are the tokens; `states`: and one that cannot be cut
// back, which adds them up.
CacheList empty_caches(bool states = false) {
  CacheList caches;
  caches.push_back(std::make_unique<DenseCache>());
  caches.push_back(std::make_unique<DenseCache>());
  if (states) {
    caches.push_back(std::make_unique<RecurrentCache>(1));
  }
  return caches;
}

void feed(CacheList& caches, const Tokens& tokens) {
  float sum = 0;
  for (int32_t token : tokens) {
    sum += static_cast<float>(token);
  }
  for (auto& layer : caches) {
    if (auto* state = dynamic_cast<RecurrentCache*>(layer.get())) {
      auto old = state->slot(0);
      mx::array more = mx::full({1, 1}, sum);
      state->set(0, old ? mx::add(*old, more) : more);
      state->advance(static_cast<int>(tokens.size()));
    } else {
      append_marked(cache_as<cache::KVCache>(*layer), tokens);
    }
  }
  for (const auto& layer : caches) {
    mx::eval(layer->state());
  }
}

CacheList caches_of(const Tokens& tokens, bool states = false) {
  CacheList caches = empty_caches(states);
  feed(caches, tokens);
  return caches;
}

// Whether the caches are those that these tokens leave behind. Writes one more
// token into them.
testing::AssertionResult hold(CacheList& caches, Tokens tokens) {
  if (cache::tokens_in(caches) != std::ssize(tokens)) {
    return testing::AssertionFailure() << cache::tokens_in(caches) << " tokens";
  }
  tokens.push_back(9);
  float sum = 0;
  for (int32_t token : tokens) {
    sum += static_cast<float>(token);
  }
  for (auto& layer : caches) {
    if (auto* state = dynamic_cast<RecurrentCache*>(layer.get())) {
      float found = state->slot(0)->item<float>() + 9;
      if (found != sum) {
        return testing::AssertionFailure() << "state " << found;
      }
    } else if (
        tokens_in(append_marked(cache_as<cache::KVCache>(*layer), {9})) !=
        tokens) {
      return testing::AssertionFailure() << "other keys";
    }
  }
  return testing::AssertionSuccess();
}

TEST(PrefixCache, FindsTheLongestStartButNeverTheWholePrompt) {
  PrefixCache prefixes({});
  Tokens tokens = count_up(0, 100);
  EXPECT_FALSE(prefixes.find("m", tokens));
  prefixes.insert("m", tokens, caches_of(tokens));
  auto same = prefixes.find("m", tokens);
  ASSERT_TRUE(same);
  EXPECT_EQ(same->tokens, 99);
  EXPECT_TRUE(hold(same->caches, count_up(0, 99)));
  auto longer = prefixes.find("m", tokens + Tokens{5, 6});
  ASSERT_TRUE(longer);
  EXPECT_EQ(longer->tokens, 100);
  EXPECT_TRUE(hold(longer->caches, tokens));
  auto other = prefixes.find("m", count_up(0, 70) + count_up(500, 30));
  ASSERT_TRUE(other);
  EXPECT_EQ(other->tokens, 70);
  EXPECT_TRUE(hold(other->caches, count_up(0, 70)));
  EXPECT_FALSE(prefixes.find("m", Tokens{0}));
  EXPECT_FALSE(prefixes.find("m", Tokens{}));
  EXPECT_FALSE(prefixes.find("m", count_up(0, 5)));  // not worth it
  EXPECT_FALSE(prefixes.find("m+adapter", tokens));
  // What was found was written to; what is kept was not.
  auto again = prefixes.find("m", tokens + Tokens{5});
  ASSERT_TRUE(again);
  EXPECT_TRUE(hold(again->caches, tokens));
  PrefixCacheStats stats = prefixes.stats();
  EXPECT_EQ(stats.lookups, 9u);
  EXPECT_EQ(stats.hits, 4u);
  EXPECT_EQ(stats.tokens_found, 99u + 100u + 70u + 100u);
}

TEST(PrefixCache, KeepsWhatItWasGivenWhileTheRowGoesOn) {
  PrefixCache prefixes({});
  Tokens tokens = count_up(0, 90);
  CacheList row = caches_of(tokens, true);
  prefixes.insert("m", tokens, row);
  for (int t = 0; t < 200; ++t) {
    feed(row, {700 + t});
  }
  auto hit = prefixes.find("m", tokens + Tokens{1});
  ASSERT_TRUE(hit);
  EXPECT_TRUE(hold(hit->caches, tokens));
}

TEST(PrefixCache, TakesTheFirstTokensOfCachesThatRanAhead) {
  PrefixCache prefixes({});
  Tokens tokens = count_up(0, 90);
  prefixes.insert("m", count_up(0, 80), caches_of(tokens));
  auto hit = prefixes.find("m", tokens);
  ASSERT_TRUE(hit);
  EXPECT_EQ(hit->tokens, 80);
  EXPECT_TRUE(hold(hit->caches, count_up(0, 80)));
  EXPECT_THROW(
      prefixes.insert("m", tokens + Tokens{1}, caches_of(tokens)),
      Error);
  EXPECT_THROW(
      prefixes.insert("s", count_up(0, 80), caches_of(tokens, true)),
      Error);
}

TEST(PrefixCache, UsesStatesOnlyWhereTheyWereKept) {
  PrefixCache prefixes({});
  Tokens system = count_up(0, 100);
  Tokens first = system + count_up(200, 50);
  for (int length : {64, 128, 150}) {
    Tokens start(first.begin(), first.begin() + length);
    prefixes.insert("m", start, caches_of(start, true));
  }
  auto hit = prefixes.find("m", system + count_up(300, 50));
  ASSERT_TRUE(hit);
  EXPECT_EQ(hit->tokens, 64);
  EXPECT_TRUE(hold(hit->caches, count_up(0, 64)));
  auto same = prefixes.find("m", first);
  ASSERT_TRUE(same);
  EXPECT_EQ(same->tokens, 128);
  EXPECT_FALSE(prefixes.find("m", count_up(0, 64)));
}

TEST(PrefixCache, SaysWhereStatesAreWorthKeeping) {
  EXPECT_EQ(PrefixCache::tokens_to_checkpoint(0, 1000, true), 1000);
  std::vector<int> stops;
  for (int done = 0; done < 1000;) {
    done += PrefixCache::tokens_to_checkpoint(done, 1000, false);
    stops.push_back(done);
  }
  EXPECT_EQ(stops, (std::vector<int>{512, 960, 1000}));
  EXPECT_EQ(PrefixCache::tokens_to_checkpoint(0, 40, false), 40);
  EXPECT_EQ(PrefixCache::tokens_to_checkpoint(0, 65, false), 64);
  EXPECT_EQ(PrefixCache::tokens_to_checkpoint(0, 64, false), 64);
  EXPECT_EQ(PrefixCache::tokens_to_checkpoint(64, 64, false), 0);
  int count = 0;
  for (int done = 0; done < 100'000; ++count) {
    int more = PrefixCache::tokens_to_checkpoint(done, 100'000, false);
    ASSERT_GT(more, 0);
    done += more;
  }
  EXPECT_LE(count, 10);
}

TEST(PrefixCache, StopsWhereAPromptPartsFromAKnownOne) {
  PrefixCache prefixes({});
  Tokens system = count_up(0, 100);
  Tokens first = system + count_up(200, 50);
  prefixes.insert("m", first, caches_of(first, true));
  Tokens second = system + count_up(300, 50);
  EXPECT_FALSE(prefixes.find("m", second));
  EXPECT_EQ(prefixes.tokens_to_checkpoint("m", second, 0, 149, false), 100);
  EXPECT_EQ(prefixes.tokens_to_checkpoint("m", second, 100, 149, false), 28);
  EXPECT_EQ(prefixes.tokens_to_checkpoint("m", second, 0, 149, true), 149);
  EXPECT_EQ(prefixes.tokens_to_checkpoint("x", second, 0, 149, false), 128);
  prefixes.insert("m", system, caches_of(system, true));
  auto third = prefixes.find("m", system + count_up(400, 50));
  ASSERT_TRUE(third);
  EXPECT_EQ(third->tokens, 100);
}

TEST(PrefixCache, DropsTheLeastRecentlyUsedUnderItsLimit) {
  // Buffers of the right size, not larger ones of earlier tests.
  mx::clear_cache();
  size_t one = 0;
  {
    PrefixCache prefixes({});
    prefixes.insert("m", count_up(0, 200), caches_of(count_up(0, 200)));
    one = prefixes.stats().bytes;
    EXPECT_GE(one, 2u * 2 * 200 * 2 * 2 * sizeof(float));
  }
  PrefixCache prefixes({.max_bytes = 3 * one + one / 2});
  auto prompt = [](int i) { return count_up(1000 * i, 200); };
  for (int i = 0; i < 3; ++i) {
    prefixes.insert("m", prompt(i), caches_of(prompt(i)));
  }
  EXPECT_TRUE(prefixes.find("m", prompt(0)));
  prefixes.insert("m", prompt(3), caches_of(prompt(3)));
  PrefixCacheStats stats = prefixes.stats();
  EXPECT_EQ(stats.evictions, 1u);
  EXPECT_EQ(stats.entries, 3u);
  EXPECT_LE(stats.bytes, 3 * one + one / 2);
  EXPECT_TRUE(prefixes.find("m", prompt(0)));
  EXPECT_FALSE(prefixes.find("m", prompt(1)));
  EXPECT_EQ(prefixes.shrink(one + 1), 2 * one);
  EXPECT_EQ(prefixes.stats().entries, 1u);
  prefixes.clear("m");
  EXPECT_EQ(prefixes.stats().bytes, 0u);
  EXPECT_EQ(prefixes.stats().entries, 0u);
  EXPECT_FALSE(prefixes.find("m", prompt(0)));
  // What is larger than the limit takes nobody's place.
  prefixes.insert("m", prompt(1), caches_of(prompt(1)));
  prefixes.insert("m", count_up(0, 3000), caches_of(count_up(0, 3000)));
  EXPECT_EQ(prefixes.stats().entries, 1u);
  EXPECT_TRUE(prefixes.find("m", prompt(1)));
  PrefixCache nothing({.max_bytes = 0});
  nothing.insert("m", prompt(0), caches_of(prompt(0)));
  EXPECT_FALSE(nothing.find("m", prompt(0)));
}

TEST(PrefixCache, KeepsTheStartThatOthersUseOfWhatNobodyGoesOnWith) {
  PrefixCache prefixes({});
  Tokens system = count_up(0, 128);
  Tokens first = system + count_up(500, 800);
  prefixes.insert("m", first, caches_of(first));
  prefixes.insert("m", count_up(2000, 90), caches_of(count_up(2000, 90)));
  EXPECT_TRUE(prefixes.find("m", system + Tokens{7, 7}));
  size_t before = prefixes.stats().bytes;
  EXPECT_GT(prefixes.shrink(1), 0u);
  EXPECT_LT(prefixes.stats().bytes, before);
  EXPECT_EQ(prefixes.find("m", first)->tokens, 128);
  auto hit = prefixes.find("m", system + Tokens{7, 7});
  ASSERT_TRUE(hit);
  EXPECT_TRUE(hold(hit->caches, system));
  prefixes.shrink(SIZE_MAX);
  EXPECT_EQ(prefixes.stats().bytes, 0u);
}

TEST(PrefixCache, ALongerEntryTakesThePlaceOfWhatItCanBeCutBackTo) {
  PrefixCache prefixes({});
  Tokens tokens = count_up(0, 300);
  for (int length : {100, 200, 300, 150}) {
    Tokens start(tokens.begin(), tokens.begin() + length);
    prefixes.insert("m", start, caches_of(start));
  }
  EXPECT_EQ(prefixes.stats().entries, 1u);
  // States are each of its own use, but not without end.
  for (int length = 10; length < 300; length += 5) {
    Tokens start(tokens.begin(), tokens.begin() + length);
    prefixes.insert("s", start, caches_of(start, true));
  }
  EXPECT_LE(prefixes.stats().entries, 1u + PrefixCache::kMostOnPath);
}

TEST(PrefixCache, LeavesKindsAloneThatCannotBeCopied) {
  class Odd : public RecurrentCache {
   public:
    Odd() : RecurrentCache(1) {}
    std::unique_ptr<LayerCache> shared_copy(int) const override {
      fail(ErrorKind::unsupported, "cache", "this kind cannot be copied");
    }
  };
  CacheList caches;
  caches.push_back(std::make_unique<Odd>());
  PrefixCache prefixes({});
  prefixes.insert("m", count_up(0, 50), caches);
  EXPECT_EQ(prefixes.stats().entries, 0u);
}

// Whatever is kept, found, written to and dropped: what is found is what the
// prompt's first tokens leave behind.
TEST(PrefixCache, FindsTheRightStatesUnderPressure) {
  for (bool states : {false, true}) {
    std::mt19937 random(states ? 5 : 3);
    auto below = [&](size_t n) { return static_cast<int>(random() % n); };
    PrefixCache prefixes({.max_bytes = 400 << 10});
    std::vector<Tokens> prompts;
    int hits = 0;
    for (int round = 0; round < 400; ++round) {
      Tokens prompt;
      if (!prompts.empty() && below(4) > 0) {
        const Tokens& other = prompts
            [prompts.size() - 1 -
             static_cast<size_t>(below(std::min<size_t>(prompts.size(), 12)))];
        prompt.assign(other.begin(), other.begin() + below(other.size() + 1));
      }
      int more = 1 + below(150);
      for (int i = 0; i < more; ++i) {
        prompt.push_back(below(900));
      }
      prompts.push_back(prompt);
      CacheList row = empty_caches(states);
      int done = 0;
      if (auto hit = prefixes.find("m", prompt)) {
        ++hits;
        Tokens start(prompt.begin(), prompt.begin() + hit->tokens);
        CacheList copy = cache::shared_copies(hit->caches);
        ASSERT_TRUE(hold(copy, start)) << round;
        row = std::move(hit->caches);
        done = static_cast<int>(start.size());
      }
      int total = static_cast<int>(prompt.size());
      while (done < total) {
        int n =
            prefixes.tokens_to_checkpoint("m", prompt, done, total, !states);
        ASSERT_GT(n, 0);
        feed(row, Tokens(prompt.begin() + done, prompt.begin() + done + n));
        done += n;
        prefixes.insert(
            "m",
            Tokens(prompt.begin(), prompt.begin() + done),
            row);
      }
      ASSERT_TRUE(hold(row, prompt)) << round;
      row.clear();
      prefixes.shrink(0);
      ASSERT_LE(prefixes.stats().bytes, size_t{400} << 10);
      if (below(40) == 0) {
        prefixes.shrink(static_cast<size_t>(below(200'000)));
      }
    }
    EXPECT_GT(hits, 150);
    EXPECT_GT(prefixes.stats().evictions, 20u);
  }
}

}  // namespace
}  // namespace mlxx::engine
