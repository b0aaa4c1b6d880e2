// Every family with a decoder, or some of its layers, that runs as one kernel,
// against itself operation by operation.
#include <gtest/gtest.h>

#include "mlxx/models/fused_decoder.h"
#include "mlxx/models/fused_layers.h"
#include "tests/kernels/relative_error.h"
#include "tests/models/fake_checkpoint.h"

namespace mlxx::models {
namespace {

using kernels::ActivationForm;

constexpr int kTokens = 40;

FakeCheckpoint tiny_checkpoint(const std::string& family) {
  return random_checkpoint(
      parse_json(find_model(family).tiny_config, "tiny"),
      hub::Quantization{32, 4, "affine"});
}

class FusedFamilies : public testing::TestWithParam<std::string> {
 protected:
  FusedFamilies() : checkpoint_(tiny_checkpoint(GetParam())) {}

  std::shared_ptr<const Model>
  load(ActivationForm form, kernels::InstructionSet set, int threads) const {
    LoadOptions options;
    options.kernels = kernels::Selection{
        .instruction_set = set,
        .threads = std::make_shared<ThreadPool>(threads),
        .activations = form};
    return load_model(checkpoint_, options);
  }

  static bool has_fused_layers(const Model& model) {
    return std::ranges::any_of(model.make_cache({}), [](const auto& cache) {
      return FusedLayers::made(*cache);
    });
  }
  static mx::array ids(const Model& model, int rows) {
    return mx::random::randint(
        0,
        model.summary().vocab_size,
        {rows, kTokens},
        mx::int32,
        mx::random::key(1));
  }
  static mx::array in_pieces(
      const Model& model,
      cache::CacheList cache,
      const mx::array& ids,
      const std::vector<int>& lengths) {
    std::vector<mx::array> parts;
    int at = 0;
    for (int n : lengths) {
      parts.push_back(model.forward(
          mx::slice(ids, {0, at}, {ids.shape(0), at + n}),
          cache));
      at += n;
    }
    return mx::concatenate(parts, 1);
  }

  FakeCheckpoint checkpoint_;
};

TEST_P(FusedFamilies, AgreeWithTheirOperationsOneByOne) {
  auto best = kernels::available_instruction_sets().back();
  auto exact = load(ActivationForm::float32, best, 2);
  if (!has_fused_layers(*exact)) {
    GTEST_SKIP() << "runs as operations";
  }
  mx::array tokens = ids(*exact, 2);
  mx::array expected = in_pieces(
      *exact,
      exact->make_cache({.per_layer = true}),
      tokens,
      {30, 8, 1, 1});
  mx::array got =
      in_pieces(*exact, exact->make_cache({}), tokens, {30, 8, 1, 1});
  EXPECT_LT(relative_error(got, expected), 1e-5);
}

TEST_P(FusedFamilies, GiveARowTheSameBitsInEveryCompany) {
  for (auto set : kernels::available_instruction_sets()) {
    auto one = load(ActivationForm::int16, set, 1);
    if (!has_fused_layers(*one)) {
      GTEST_SKIP() << "runs as operations";
    }
    auto two = load(ActivationForm::int16, set, 2);
    mx::array tokens = ids(*one, 1);
    mx::array expected =
        in_pieces(*one, one->make_cache({}), tokens, {kTokens});
    for (int rows : {1, 2, 8, 33}) {
      mx::array got = in_pieces(
          *two,
          two->make_cache({}),
          mx::repeat(tokens, rows, 0),
          {33, 1, 2, 1, 3});
      mx::array last =
          mx::slice(got, {rows - 1, 0, 0}, {rows, kTokens, got.shape(2)});
      EXPECT_TRUE(same_bits(last, expected))
          << kernels::to_string(set) << " " << rows;
    }
  }
}

std::vector<std::string> all_families() {
  std::vector<std::string> names;
  for (const auto* info : all_models()) {
    names.emplace_back(info->model_type);
  }
  return names;
}

INSTANTIATE_TEST_SUITE_P(
    All,
    FusedFamilies,
    testing::ValuesIn(all_families()),
    [](const auto& info) { return info.param; });

TEST(FusedDecoder, RunsTheDenseFamilies) {
  for (const char* family :
       {"llama",     "cohere2",    "exaone4",    "gemma",    "gemma2",
        "glm4",      "gpt2",       "granite",    "minicpm",  "gemma3_text",
        "internlm3", "olmo2",      "ministral3", "nemotron", "olmo3",
        "phi3",      "qwen2",      "qwen3",      "seed_oss", "smollm3",
        "stablelm",  "starcoder2", "ernie4_5"}) {
    auto checkpoint = tiny_checkpoint(family);
    auto model =
        load_model(checkpoint, LoadOptions{.kernels = selection(false)});
    EXPECT_TRUE(FusedDecoder::made(model->make_cache({}))) << family;
  }
}

TEST(FusedLayers, RunTheAttentionOfMixturesOfExperts) {
  for (const char* family : {"mixtral", "qwen3_moe"}) {
    auto checkpoint = tiny_checkpoint(family);
    auto model =
        load_model(checkpoint, LoadOptions{.kernels = selection(false)});
    auto caches = model->make_cache({});
    EXPECT_GT(caches.size(), 1u);
    for (const auto& cache : caches) {
      EXPECT_TRUE(FusedLayers::made(*cache)) << family;
    }
  }
}

}  // namespace
}  // namespace mlxx::models
