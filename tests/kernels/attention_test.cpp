#include "mlxx/kernels/attention/attention.h"

#include <gtest/gtest.h>

#include "mlxx/base/error.h"
#include "mlxx/cache/blocks.h"
#include "mlxx/cache/dense.h"
#include "tests/kernels/relative_error.h"

namespace mlxx::kernels {
namespace {

constexpr int kHeads = 4;
constexpr int kKvHeads = 2;
constexpr int kSize = 16;
const float kScale = 0.25f;

// Softmax attention of one row, written out: [H, L, D].
mx::array written_out(
    const mx::array& q,
    const mx::array& k,
    const mx::array& v,
    bool causal) {
  int L = q.shape(2);
  int S = k.shape(2);
  mx::array keys = mx::repeat(k, kHeads / kKvHeads, 1);
  mx::array values = mx::repeat(v, kHeads / kKvHeads, 1);
  mx::array scores = mx::multiply(
      mx::matmul(q, mx::swapaxes(keys, -1, -2)),
      mx::array(kScale));
  if (causal) {
    mx::array rows = mx::expand_dims(mx::arange(S - L, S), 1);
    mx::array columns = mx::expand_dims(mx::arange(S), 0);
    scores =
        mx::where(mx::greater_equal(rows, columns), scores, mx::array(-1e30f));
  }
  return mx::matmul(mx::softmax(scores, -1), values);
}

TEST(Attention, MatchesTheFormulaForPrefillAndDecode) {
  for (auto [L, S] : {std::pair{1, 1}, {1, 70}, {5, 5}, {33, 90}}) {
    mx::array q = normal({1, kHeads, L, kSize}, 1);
    mx::array k = normal({1, kKvHeads, S, kSize}, 2);
    mx::array v = normal({1, kKvHeads, S, kSize}, 3);
    mx::array got = attention(
        q,
        DenseView{k, v},
        {.scale = kScale, .mask = {L > 1 ? "causal" : ""}});
    EXPECT_LT(relative_error(got, written_out(q, k, v, L > 1)), 1e-5);
  }
}

TEST(Attention, BlocksGiveTheBitsOfTheDenseLayout) {
  auto pool = std::make_shared<cache::BlockPool>();
  cache::BlocksCache blocks(pool);
  cache::DenseCache dense;
  int at = 0;
  for (int L : {100, 1, 1, 40, 1}) {
    mx::array q = normal({2, kHeads, L, kSize}, ++at);
    mx::array k = normal({2, kKvHeads, L, kSize}, 100 + at);
    mx::array v = normal({2, kKvHeads, L, kSize}, 200 + at);
    auto mask = dense.make_mask(L);
    mx::array expected = attention(q, dense.append(k, v), {kScale, mask});
    mx::array got = attention(q, blocks.append(k, v), {kScale, mask});
    EXPECT_TRUE(same_bits(got, expected)) << L;
  }
}

TEST(Attention, FullyMaskedRowsAreNotNan) {
  for (auto dtype : {mx::float32, mx::float16, mx::bfloat16}) {
    mx::array q = mx::astype(normal({1, kHeads, 2, kSize}, 1), dtype);
    mx::array k = mx::astype(normal({1, kKvHeads, 3, kSize}, 2), dtype);
    bool seen[] = {true, false, true, false, false, false};
    mx::array mask(seen, {2, 3}, mx::bool_);
    mx::array got = attention(q, DenseView{k, k}, {kScale, {"", mask}});
    EXPECT_FALSE(mx::any(mx::isnan(got)).item<bool>());
  }
}

TEST(Attention, RowsMustAgreeWithTheCache) {
  BlocksView view{
      mx::zeros({4, 2, 64, 16}),
      mx::zeros({4, 2, 64, 16}),
      {{0}},
      {3}};
  EXPECT_THROW(attention(normal({2, 4, 1, 16}, 1), view, {kScale}), Error);
}

}  // namespace
}  // namespace mlxx::kernels
