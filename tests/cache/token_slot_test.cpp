#include <gtest/gtest.h>

#include "mlxx/cache/block_pool.h"
#include "mlxx/cache/blocks.h"
#include "mlxx/cache/dense.h"
#include "mlxx/cache/rotating.h"
#include "mlxx/cache/token_axis.h"
#include "tests/core/error_of.h"
#include "tests/kernels/relative_error.h"

namespace mlxx::cache {
namespace {

mx::array numbers(int tokens, uint64_t seed) {
  return normal({1, 2, tokens, 4}, seed);
}

// Writes the token as whoever takes a slot does, and returns what it sees.
DenseView
append_by_slot(KVCache& cache, const mx::array& keys, const mx::array& values) {
  cache.token_slot();
  auto slot = cache.token_slot();
  int visible = slot->visible;
  mx::array new_keys =
      mx::slice_update(slot->keys, keys, mx::array({slot->write_at}), {2});
  mx::array new_values =
      mx::slice_update(slot->values, values, mx::array({slot->write_at}), {2});
  cache.take_token(new_keys, new_values);
  return {
      slice_tokens(new_keys, 0, visible),
      slice_tokens(new_values, 0, visible)};
}

// A prompt, then tokens, of which some are taken back on the way.
void expect_as_append(KVCache& mine, KVCache& expected, int prompt) {
  EXPECT_FALSE(mine.token_slot());
  mine.append(numbers(prompt, 1), numbers(prompt, 2));
  expected.append(numbers(prompt, 1), numbers(prompt, 2));
  for (int i = 0; i < 300; ++i) {
    mx::array keys = numbers(1, 10 + i);
    mx::array values = numbers(1, 1000 + i);
    DenseView view = append_by_slot(mine, keys, values);
    auto wanted = std::get<DenseView>(expected.append(keys, values));
    ASSERT_TRUE(same_bits(view.keys, wanted.keys)) << i;
    ASSERT_TRUE(same_bits(view.values, wanted.values)) << i;
    ASSERT_EQ(mine.offset(), expected.offset());
    ASSERT_EQ(mine.nbytes(), expected.nbytes());
    if (i == 7) {
      // A slot that nobody fills changes nothing.
      mine.token_slot();
      ASSERT_EQ(mine.trim(3), expected.trim(3));
    }
  }
  auto chunk = std::get<DenseView>(mine.append(numbers(5, 3), numbers(5, 4)));
  auto wanted =
      std::get<DenseView>(expected.append(numbers(5, 3), numbers(5, 4)));
  EXPECT_TRUE(same_bits(chunk.keys, wanted.keys));
  EXPECT_TRUE(same_bits(chunk.values, wanted.values));
}

TEST(TokenSlot, IsWhatAppendDoes) {
  for (int prompt : {1, 5, 255, 256, 300}) {
    SCOPED_TRACE(prompt);
    DenseCache mine;
    DenseCache expected;
    expect_as_append(mine, expected, prompt);
    for (int size : {16, 280}) {
      RotatingCache rotating(size, 4);
      RotatingCache expected_rotating(size, 4);
      expect_as_append(rotating, expected_rotating, prompt);
    }
  }
}

TEST(TokenSlot, CachesWithoutOneSaySo) {
  auto pool = std::make_shared<BlockPool>();
  BlocksCache cache(pool);
  cache.append(numbers(3, 1), numbers(3, 2));
  EXPECT_FALSE(cache.token_slot());
  EXPECT_ERROR(
      cache.take_token(numbers(1, 1), numbers(1, 2)),
      "internal",
      "by append() only");
}

}  // namespace
}  // namespace mlxx::cache
