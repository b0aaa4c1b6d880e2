// A decoder that runs as one kernel against the same layer by layer.
#include <gtest/gtest.h>

#include "mlxx/cache/decoder_cache.h"
#include "mlxx/core/memory.h"
#include "tests/kernels/relative_error.h"
#include "tests/models/fake_checkpoint.h"

namespace mlxx::models {
namespace {

using kernels::ActivationForm;

Json config(const std::string& changes = "{}") {
  Json json = parse_json(
      R"({"model_type":"llama","vocab_size":100,"hidden_size":96,
          "intermediate_size":160,"num_hidden_layers":2,
          "num_attention_heads":4,"num_key_value_heads":2,"head_dim":16,
          "rms_norm_eps":1e-5,"tie_word_embeddings":true})",
      "config.json");
  json.update(parse_json(changes, "changes"));
  return json;
}

const hub::Quantization kFourBits{32, 4, "affine"};

std::shared_ptr<const Model> load(
    const FakeCheckpoint& checkpoint,
    ActivationForm form,
    int threads = 2,
    kernels::InstructionSet set =
        kernels::available_instruction_sets().back()) {
  LoadOptions options;
  options.kernels = kernels::Selection{
      .instruction_set = set,
      .threads = std::make_shared<ThreadPool>(threads),
      .activations = form};
  return load_model(checkpoint, options);
}

mx::array random_ids(int rows, int length, int seed = 1) {
  return mx::random::randint(
      0,
      100,
      {rows, length},
      mx::int32,
      mx::random::key(seed));
}

mx::array columns(const mx::array& ids, int from, int to) {
  return mx::slice(ids, {0, from}, {ids.shape(0), to});
}

void expect_agreement(const FakeCheckpoint& checkpoint, int tokens) {
  for (auto [form, bound] :
       {std::pair{ActivationForm::float32, 5e-6f},
        {ActivationForm::int16, 1e-3f},
        {ActivationForm::int8, 5e-2f}}) {
    auto exact = load(checkpoint, ActivationForm::float32);
    auto by_layer = exact->make_cache({.per_layer = true});
    ASSERT_EQ(by_layer.size(), 2u);
    mx::array ids = random_ids(2, tokens);
    mx::array expected = exact->forward(ids, by_layer);
    auto model = load(checkpoint, form);
    auto fused = model->make_cache({});
    ASSERT_EQ(fused.size(), 1u);
    mx::array got = model->forward(ids, fused);
    EXPECT_LT(relative_error(got, expected), bound) << to_string(form);
    EXPECT_EQ(fused[0]->offset(), tokens);
    // And the next token, from both caches.
    mx::array next = random_ids(2, 1, 9);
    EXPECT_LT(
        relative_error(
            model->forward_last(next, fused),
            exact->forward_last(next, by_layer)),
        bound)
        << to_string(form);
  }
}

TEST(FusedDecoder, AgreesWithItsLayersOneByOne) {
  expect_agreement(random_checkpoint(config(), kFourBits), 150);
}

TEST(FusedDecoder, KnowsBiasesAnUntiedHeadAndOneKeyPerQuery) {
  expect_agreement(
      random_checkpoint(
          config(R"({"attention_bias":true,"mlp_bias":true,
                     "tie_word_embeddings":false,"num_key_value_heads":4})"),
          kFourBits),
      9);
}

TEST(FusedDecoder, KnowsWindowsPairsAndScaledPositions) {
  expect_agreement(
      random_checkpoint(
          config(R"({"layer_types":["full_attention","sliding_attention"],
                     "sliding_window":40,"rope_traditional":true,
                     "rope_scaling":{"type":"linear","factor":4.0}})"),
          hub::Quantization{32, 8, "affine"}),
      200);
}

TEST(FusedDecoder, TakesMatricesOfDifferentKinds) {
  FakeCheckpoint checkpoint = random_checkpoint(config());
  const hub::Quantization kinds[] = {
      {32, 2, "affine"},
      {16, 4, "nvfp4"},
      {32, 3, "affine"},
      {32, 4, "affine"},
      {32, 4, "mxfp4"},
      {32, 5, "affine"},
      {32, 8, "mxfp8"},
      {32, 6, "affine"},
      {32, 8, "affine"},
  };
  constexpr int kKinds = std::size(kinds) + 1;  // and dense
  int next = 0;
  for (const auto& info : checkpoint.tensors()) {
    int kind = next++ % kKinds;
    if (info.shape.size() == 2 && kind < kKinds - 1) {
      checkpoint.add_quantized(
          info.name,
          checkpoint.load(info.name, {}).weight,
          kinds[kind]);
    }
  }
  expect_agreement(checkpoint, 20);
}

TEST(FusedDecoder, TakesFloatingPointCodes) {
  for (const auto& q :
       {hub::Quantization{32, 4, "mxfp4"}, hub::Quantization{16, 4, "nvfp4"}}) {
    expect_agreement(random_checkpoint(config(), q), 20);
  }
}

// Longer than two splits of the attention and one pass over the rows.
TEST(FusedDecoder, GivesARowTheSameBitsInEveryCompany) {
  auto checkpoint = random_checkpoint(config(), kFourBits);
  constexpr int kTokens = 530;
  mx::array ids = random_ids(1, kTokens);
  for (auto form : {ActivationForm::int16, ActivationForm::int8}) {
    std::optional<mx::array> expected;
    for (int threads : {1, 2}) {
      auto model = load(checkpoint, form, threads);
      for (const auto& pieces :
           {std::vector<int>{kTokens},
            std::vector<int>{129, 1, 2, 3, 4, 33, 8, 350},
            std::vector<int>{260, 1, 1, 267, 1}}) {
        auto cache = model->make_cache({});
        std::vector<mx::array> parts;
        int at = 0;
        for (int n : pieces) {
          parts.push_back(model->forward(columns(ids, at, at + n), cache));
          at += n;
        }
        mx::array logits = mx::concatenate(parts, 1);
        if (!expected) {
          expected = logits;
        }
        EXPECT_TRUE(same_bits(logits, *expected))
            << to_string(form) << " " << threads << " " << pieces[0];
      }
    }
    // Rows decoded together, 1, 2, 8 and 33 of them.
    auto model = load(checkpoint, form);
    mx::array last = mx::slice(*expected, {0, 139, 0}, {1, 140, 100});
    for (int rows : {1, 2, 8, 33}) {
      auto cache = model->make_cache({});
      mx::array all = mx::repeat(columns(ids, 0, 140), rows, 0);
      model->forward_last(columns(all, 0, 139), cache);
      mx::array got = model->forward_last(columns(all, 139, 140), cache);
      for (int row : {0, rows - 1}) {
        EXPECT_TRUE(same_bits(
            mx::reshape(mx::slice(got, {row, 0}, {row + 1, 100}), {1, 1, 100}),
            last))
            << to_string(form) << " row " << row << " of " << rows;
      }
    }
  }
}

TEST(FusedDecoder, ForgetsWhatIsTrimmedAndSharesWhatIsForked) {
  auto checkpoint = random_checkpoint(config(), kFourBits);
  auto model = load(checkpoint, ActivationForm::int16);
  mx::array ids = random_ids(1, 100);
  mx::array other = random_ids(1, 30, 7);
  auto fresh = [&](int keep) {
    auto cache = model->make_cache({});
    return model->forward_last(
        mx::concatenate({columns(ids, 0, keep), other}, 1),
        cache);
  };
  auto cache = model->make_cache({});
  model->forward_last(ids, cache);
  EXPECT_EQ(cache[0]->trim(20), 20);
  EXPECT_EQ(cache[0]->offset(), 80);
  auto& state = dynamic_cast<cache::DecoderCache&>(*cache[0]);
  cache::CacheList fork;
  fork.push_back(state.fork());
  // The fork writes into a block of its own, so this one stays as it is.
  EXPECT_TRUE(same_bits(model->forward_last(other, fork), fresh(80)));
  EXPECT_EQ(cache[0]->trim(10), 10);
  EXPECT_TRUE(same_bits(model->forward_last(other, cache), fresh(70)));
  EXPECT_EQ(cache[0]->trim(1000), 100);
  EXPECT_EQ(cache[0]->offset(), 0);
}

TEST(FusedDecoder, RefusesAnotherNumberOfRows) {
  auto checkpoint = random_checkpoint(config(), kFourBits);
  auto model = load(checkpoint, ActivationForm::int16);
  auto cache = model->make_cache({});
  model->forward_last(random_ids(2, 5), cache);
  EXPECT_THROW(model->forward_last(random_ids(3, 1), cache), Error);
}

TEST(FusedDecoder, GivesItsMemoryBack) {
  auto checkpoint = random_checkpoint(config(), kFourBits);
  auto model = load(checkpoint, ActivationForm::int16);
  {
    auto cache = model->make_cache({});
    mx::eval(model->forward_last(random_ids(1, 10), cache));
  }
  mx::synchronize();
  size_t before = memory_use().active;
  {
    auto cache = model->make_cache({});
    mx::eval(model->forward_last(random_ids(1, 300), cache));
    EXPECT_GE(memory_use().active, before + cache[0]->nbytes());
  }
  mx::synchronize();
  EXPECT_EQ(memory_use().active, before);
}

}  // namespace
}  // namespace mlxx::models
