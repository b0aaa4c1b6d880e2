// One pass for rows of different lengths that join and leave, in every
// architecture of the registry: each row as if it were alone.
#include <gtest/gtest.h>

#include "tests/kernels/relative_error.h"
#include "tests/models/fake_checkpoint.h"

namespace mlxx::models {
namespace {

struct Variant {
  const ModelInfo* info;
  bool fallback;
  bool quantized;
};

void PrintTo(const Variant& variant, std::ostream* out) {
  *out << variant.info->model_type << (variant.fallback ? " fallback" : " auto")
       << (variant.quantized ? " quantized" : "");
}

class Rows : public testing::TestWithParam<Variant> {
 protected:
  Rows() {
    Json config = parse_json(GetParam().info->tiny_config, "tiny");
    std::optional<hub::Quantization> q;
    if (GetParam().quantized) {
      q = hub::Quantization{32, 4, "affine"};
    }
    FakeCheckpoint checkpoint = random_checkpoint(config, q);
    model_ = load_model(
        checkpoint,
        LoadOptions{.kernels = selection(GetParam().fallback)});
  }

  // Token `position` of row `row`.
  mx::array token(int row, int position) const {
    int vocabulary = model_->summary().vocab_size;
    return mx::array({(row * 37 + position * 11 + 5) % vocabulary}, {1});
  }

  cache::CacheList prefilled(int row, int length) const {
    auto cache = model_->make_cache({});
    if (length > 0) {
      std::vector<mx::array> tokens;
      for (int i = 0; i < length; ++i) {
        tokens.push_back(token(row, i));
      }
      mx::eval(model_->forward_last(
          mx::expand_dims(mx::concatenate(tokens, 0), 0),
          cache));
    }
    return cache;
  }

  void expect_equal(const mx::array& together, const mx::array& alone) const {
    if (GetParam().fallback) {
      EXPECT_LT(relative_error(together, alone), 2e-5f);
    } else {
      EXPECT_TRUE(same_bits(together, alone))
          << relative_error(together, alone);
    }
  }

  std::shared_ptr<const Model> model_;
};

// Past a window of 24 and a block of 64, and one without any token yet.
constexpr int kLengths[] = {30, 0, 70, 22};
// Which rows take each of the steps, and in what order.
const std::vector<std::vector<int>> kSteps = {
    {0},
    {0, 2},
    {0, 2, 1},
    {0, 2, 1, 3},
    {0, 2, 1, 3},
    {1, 2, 3},
    {2, 0},
    {3}};

TEST_P(Rows, AreComputedAsIfEachWereAlone) {
  std::vector<cache::CacheList> together;
  std::vector<cache::CacheList> alone;
  std::vector<int> lengths(std::begin(kLengths), std::end(kLengths));
  for (int row = 0; row < std::ssize(lengths); ++row) {
    together.push_back(prefilled(row, lengths[row]));
    alone.push_back(prefilled(row, lengths[row]));
  }
  std::vector<mx::array> got;
  std::vector<mx::array> expected;
  for (const auto& rows : kSteps) {
    std::vector<mx::array> tokens;
    std::vector<cache::CacheList*> caches;
    for (int row : rows) {
      tokens.push_back(token(row, lengths[row]));
      caches.push_back(&together[row]);
      expected.push_back(
          model_->forward_last(mx::reshape(tokens.back(), {1, 1}), alone[row]));
      ++lengths[row];
    }
    mx::array logits = model_->forward_rows(mx::concatenate(tokens, 0), caches);
    for (int i = 0; i < std::ssize(rows); ++i) {
      got.push_back(mx::slice(logits, {i, 0}, {i + 1, logits.shape(1)}));
    }
    // Steps are handed over one by one, and two of them before any is read.
    mx::async_eval(logits);
  }
  for (size_t i = 0; i < got.size(); ++i) {
    SCOPED_TRACE(i);
    expect_equal(got[i], expected[i]);
  }
  for (size_t row = 0; row < lengths.size(); ++row) {
    EXPECT_EQ(together[row].front()->offset(), lengths[row]);
  }
}

TEST_P(Rows, OfTheSameModelOnly) {
  auto own = model_->make_cache({});
  cache::CacheList other;
  std::vector<cache::CacheList*> rows{&own, &other};
  EXPECT_THROW(model_->forward_rows(mx::array({1, 2}, {2}), rows), Error);
  rows.pop_back();
  EXPECT_THROW(model_->forward_rows(mx::array({1, 2}, {2}), rows), Error);
}

std::vector<Variant> variants() {
  std::vector<Variant> all;
  for (const ModelInfo* info : all_models()) {
    all.push_back({info, true, false});
    all.push_back({info, false, false});
    all.push_back({info, false, true});
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(
    EveryModel,
    Rows,
    testing::ValuesIn(variants()),
    [](const testing::TestParamInfo<Variant>& variant) {
      return fmt::format(
          "{}_{}{}",
          variant.param.info->model_type,
          variant.param.fallback ? "fallback" : "auto",
          variant.param.quantized ? "_quantized" : "");
    });

}  // namespace
}  // namespace mlxx::models
