#include "mlxx/cache/rotating.h"

#include <algorithm>
#include <random>

#include <gtest/gtest.h>

#include "mlxx/base/error.h"
#include "tests/cache/token_history.h"

namespace mlxx::cache {
namespace {

// What the cache should hold, oldest first: lists instead of arrays.
class Model {
 public:
  Model(int max_size, int keep) : max_size_(max_size), keep_(keep) {}

  void append(const std::vector<int>& tokens) {
    while (static_cast<int>(held_.size()) > max_size_ - 1) {
      held_.erase(held_.begin() + keep_);
    }
    held_.insert(held_.end(), tokens.begin(), tokens.end());
    seen_ += static_cast<int>(tokens.size());
  }
  void trim(int n) {
    held_.resize(held_.size() - n);
    seen_ -= n;
  }
  const std::vector<int>& held() const {
    return held_;
  }
  int seen() const {
    return seen_;
  }

 private:
  int max_size_;
  int keep_;
  int seen_ = 0;
  std::vector<int> held_;
};

TEST(RotatingCache, KeepsTheFirstAndTheNewest) {
  RotatingCache cache(8, 2);
  std::vector<int> now;
  for (int t = 0; t < 30; ++t) {
    now = tokens_in(append_marked(cache, {t}));
  }
  std::ranges::sort(now);
  EXPECT_EQ(now, (std::vector<int>{0, 1, 24, 25, 26, 27, 28, 29}));
}

TEST(RotatingCache, RandomAppendsMatchAList) {
  std::mt19937 random(9);
  for (auto [max_size, keep] :
       {std::pair{8, 0}, {8, 4}, {64, 4}, {300, 4}, {300, 0}, {5, 4}}) {
    RotatingCache cache(max_size, keep);
    Model model(max_size, keep);
    for (int round = 0; round < 120; ++round) {
      bool can_trim = cache.is_trimmable() && model.seen() > 3;
      if (can_trim && random() % 4 == 0) {
        EXPECT_EQ(cache.trim(3), 3);
        model.trim(3);
        continue;
      }
      int n = random() % 2 ? 1 : 2 + static_cast<int>(random() % 24);
      auto tokens = count_up(model.seen() % 900, n);
      model.append(tokens);
      int width =
          cache.make_mask(n).array ? cache.make_mask(n).array->shape(-1) : 0;
      auto held = tokens_in(append_marked(cache, tokens));
      if (width > 0) {
        ASSERT_EQ(width, static_cast<int>(held.size()));
      }
      auto expected = model.held();
      if (n == 1) {
        // Single tokens overwrite in place: the order differs.
        std::ranges::sort(held);
        std::ranges::sort(expected);
      }
      ASSERT_EQ(held, expected) << max_size << " " << keep << " " << round;
      ASSERT_EQ(cache.offset(), model.seen());
    }
  }
}

// The buffer is padded to a step of 256 tokens: only the valid length counts.
TEST(RotatingCache, WindowHoldsTheLastTokensAtEveryStep) {
  RotatingCache cache(300);
  for (int t = 0; t < 1000; ++t) {
    auto held = tokens_in(append_marked(cache, {t % 900}));
    ASSERT_EQ(held.size(), static_cast<size_t>(std::min(t + 1, 300)));
  }
}

// A mask as wide as the position, not the live length, would not fit.
TEST(RotatingCache, MaskIsAsWideAsTheKeysInChunkedPrefill) {
  RotatingCache cache(64, 4);
  for (int done = 0; done < 100;) {
    int n = std::min(16, 100 - done);
    auto mask = cache.make_mask(n);
    auto view = std::get<DenseView>(append_marked(cache, count_up(done, n)));
    if (mask.array) {
      EXPECT_EQ(mask.array->shape(), (mx::Shape{n, view.keys.shape(2)}));
    } else {
      EXPECT_LE(view.keys.shape(2), 64);
    }
    // Every query sees itself and at most 64 tokens.
    if (mask.array) {
      mx::array seen = mx::sum(mx::astype(*mask.array, mx::int32), 1);
      EXPECT_LE(mx::max(seen).item<int>(), 64);
      EXPECT_GE(mx::min(seen).item<int>(), 1);
    }
    done += n;
  }
}

TEST(RotatingCache, NothingIsTrimmedOnceTokensWereOverwritten) {
  RotatingCache cache(8);
  append_marked(cache, count_up(0, 20));
  EXPECT_FALSE(cache.is_trimmable());
  EXPECT_EQ(cache.trim(1), 0);
  EXPECT_EQ(cache.offset(), 20);
}

TEST(RotatingCache, RefusesALimitBelowWhatItKeeps) {
  EXPECT_THROW(RotatingCache(4, 4), Error);
  EXPECT_THROW(RotatingCache(0), Error);
  EXPECT_THROW(RotatingCache(-5), Error);
  EXPECT_NO_THROW(RotatingCache(5, 4));
}

}  // namespace
}  // namespace mlxx::cache
