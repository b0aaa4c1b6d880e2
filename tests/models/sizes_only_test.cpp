// What a model says of its sizes without its weights, beside what it says with
// them.
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/models/fake_checkpoint.h"

namespace mlxx::models {
namespace {

struct Case {
  const ModelInfo* info;
  bool quantized;
  bool fallback;
};

class SizesOnly : public ::testing::TestWithParam<Case> {};

// Bytes of each entry after `tokens` more tokens, nothing evaluated.
std::vector<size_t>
bytes_after(const Model& model, cache::CacheList& caches, int tokens) {
  mx::array ids = mx::zeros({1, tokens}, mx::int32);
  model.forward_last(ids, caches);
  std::vector<size_t> bytes;
  for (const auto& cache : caches) {
    bytes.push_back(cache->nbytes());
  }
  return bytes;
}

TEST_P(SizesOnly, AreThoseOfTheLoadedModel) {
  const Case& at = GetParam();
  std::optional<hub::Quantization> q;
  if (at.quantized) {
    q = hub::Quantization{32, 4, "affine"};
  }
  auto checkpoint =
      random_checkpoint(parse_json(at.info->tiny_config, "tiny"), q);
  LoadOptions options;
  options.kernels = selection(at.fallback);
  auto loaded = load_model(checkpoint, options);
  options.sizes_only = true;
  auto hollow = load_model(checkpoint, options);
  EXPECT_EQ(loaded->summary().weight_bytes, hollow->summary().weight_bytes);
  EXPECT_EQ(loaded->summary().parameters, hollow->summary().parameters);

  auto real = loaded->make_cache({});
  auto traced = hollow->make_cache({});
  ASSERT_EQ(real.size(), traced.size());
  for (int tokens : {5, 1, 70}) {
    EXPECT_EQ(
        bytes_after(*loaded, real, tokens),
        bytes_after(*hollow, traced, tokens));
    for (const auto& cache : real) {
      mx::eval(cache->state());
    }
  }
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const ModelInfo* info : all_models()) {
    for (bool quantized : {false, true}) {
      for (bool fallback : {false, true}) {
        all.push_back({info, quantized, fallback});
      }
    }
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(
    AllModels,
    SizesOnly,
    ::testing::ValuesIn(cases()),
    [](const auto& info) {
      return fmt::format(
          "{}{}{}",
          info.param.info->model_type,
          info.param.quantized ? "_4bit" : "",
          info.param.fallback ? "_fallback" : "");
    });

}  // namespace
}  // namespace mlxx::models
