#include "mlxx/cache/rows.h"

#include <gtest/gtest.h>

#include "mlxx/cache/dense.h"
#include "mlxx/cache/padded.h"
#include "mlxx/cache/rotating.h"
#include "tests/cache/token_history.h"
#include "tests/core/error_of.h"

namespace mlxx::cache {
namespace {

template <typename Cache, typename... Options>
CacheList with_tokens(const std::vector<int>& tokens, Options... options) {
  CacheList caches;
  auto cache = std::make_unique<Cache>(options...);
  append_marked(*cache, tokens);
  caches.push_back(std::move(cache));
  return caches;
}

CacheList merged(const CacheList& a, const CacheList& b) {
  const CacheList* rows[] = {&a, &b};
  return merge_rows(rows);
}

std::vector<int> tokens_after(CacheList& caches, int next) {
  auto& kv = cache_as<KVCache>(*caches[0]);
  return tokens_in(append_marked(kv, {next}));
}

TEST(Rows, OfOneLengthGoTogetherAndApart) {
  auto a = with_tokens<RotatingCache>(count_up(0, 6), 8);
  auto b = with_tokens<RotatingCache>(count_up(50, 6), 8);
  auto batch = merged(a, b);
  EXPECT_EQ(batch[0]->offset(), 6);
  auto second = extract_row(batch, 1);
  // Row 1 of a batch is the first and only row again.
  EXPECT_EQ(
      tokens_after(second, 56),
      (std::vector<int>{50, 51, 52, 53, 54, 55, 56}));
  EXPECT_THROW(extract_row(batch, 2), Error);
  // The sources go on by themselves.
  EXPECT_EQ(tokens_after(a, 6), count_up(0, 7));
}

TEST(Rows, OfOtherLengthsArePadded) {
  auto a = with_tokens<DenseCache>(count_up(0, 6));
  auto b = with_tokens<DenseCache>(count_up(50, 4));
  auto batch = merged(a, b);
  auto& padded = cache_as<PaddedCache>(*batch[0]);
  EXPECT_EQ(padded.offset(), 6);
  mx::array position = *padded.position().array;
  EXPECT_TRUE(
      mx::array_equal(position, mx::array({6, 4}, mx::int32)).item<bool>());
  auto short_one = extract_row(batch, 1);
  EXPECT_EQ(short_one[0]->offset(), 4);
  EXPECT_EQ(
      tokens_after(short_one, 54),
      (std::vector<int>{50, 51, 52, 53, 54}));
  auto long_one = extract_row(batch, 0);
  EXPECT_EQ(tokens_after(long_one, 6), count_up(0, 7));
}

TEST(Rows, OfRotatingCachesMustBeOfOneLength) {
  auto a = with_tokens<RotatingCache>(count_up(0, 6), 8);
  auto b = with_tokens<RotatingCache>(count_up(50, 4), 8);
  EXPECT_ERROR(merged(a, b), "unsupported", "different lengths");
}

// Which keys each query of each row sees, from the positions alone.
void expect_mask(KVCache& cache, const std::vector<int>& padding, int L) {
  int offset = cache.offset();
  auto positions = cache.key_positions(L);
  mx::array mask = mx::contiguous(*cache.make_mask(L).array);
  auto tokens = count_up(offset, L);
  auto rows = static_cast<int>(padding.size());
  EXPECT_EQ(tokens_in(append_marked(cache, tokens, rows)), positions);
  mx::eval(mask);
  auto keys = static_cast<int>(positions.size());
  ASSERT_EQ(mask.shape(), (mx::Shape{rows, 1, L, keys}));
  for (int r = 0; r < rows; ++r) {
    for (int q = 0; q < L; ++q) {
      for (int k = 0; k < keys; ++k) {
        int position = positions[k];
        bool in_window =
            cache.window() == 0 || position > offset + q - cache.window();
        bool sees =
            position <= offset + q && in_window && position >= padding[r];
        EXPECT_EQ(mask.data<bool>()[(r * L + q) * keys + k], sees)
            << r << " " << q << " " << position;
      }
    }
  }
}

TEST(Padded, MasksFollowTheKeysOrderAndHideThePadding) {
  const std::vector<int> padding = {0, 3};
  PaddedCache dense(std::make_unique<DenseCache>(), padding);
  PaddedCache rotating(std::make_unique<RotatingCache>(8), padding);
  PaddedCache keeping(std::make_unique<RotatingCache>(8, 2), {0, 0});
  for (int L : {5, 1, 1, 4, 1, 1, 1, 1, 1, 9, 1, 1, 3}) {
    expect_mask(dense, padding, L);
    expect_mask(rotating, padding, L);
    auto positions = keeping.key_positions(L);
    EXPECT_EQ(
        tokens_in(append_marked(keeping, count_up(keeping.offset(), L), 2)),
        positions);
  }
}

}  // namespace
}  // namespace mlxx::cache
