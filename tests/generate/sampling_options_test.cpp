#include <climits>
#include <cmath>
#include <functional>

#include <gtest/gtest.h>

#include "mlxx/base/error.h"
#include "mlxx/generate/generate.h"

namespace mlxx::generate {
namespace {

constexpr int kVocabulary = 100;

struct BadOption {
  const char* name;
  const char* value;
  std::function<void(GenerateOptions&)> set;
};

TEST(SamplingOptions, DefaultsAreValid) {
  EXPECT_NO_THROW(validate(GenerateOptions{}, kVocabulary));
}

TEST(SamplingOptions, EachBadValueIsRefusedByName) {
  const float nan = std::nanf("");
  const float inf = INFINITY;
  const std::vector<BadOption> cases = {
      {"temperature", "-0.1", [](auto& o) { o.sampling.temperature = -0.1f; }},
      {"temperature", "nan", [=](auto& o) { o.sampling.temperature = nan; }},
      {"temperature", "inf", [=](auto& o) { o.sampling.temperature = inf; }},
      {"top_p", "1.5", [](auto& o) { o.sampling.top_p = 1.5f; }},
      {"top_p", "-0.5", [](auto& o) { o.sampling.top_p = -0.5f; }},
      {"top_p", "nan", [=](auto& o) { o.sampling.top_p = nan; }},
      {"top_k", "-1", [](auto& o) { o.sampling.top_k = -1; }},
      {"min_p", "-0.25", [](auto& o) { o.sampling.min_p = -0.25f; }},
      {"min_p", "2", [](auto& o) { o.sampling.min_p = 2; }},
      {"min_p", "nan", [=](auto& o) { o.sampling.min_p = nan; }},
      {"min_tokens_to_keep",
       "0",
       [](auto& o) { o.sampling.min_tokens_to_keep = 0; }},
      {"xtc_probability",
       "1.25",
       [](auto& o) { o.sampling.xtc_probability = 1.25f; }},
      {"xtc_probability",
       "nan",
       [=](auto& o) { o.sampling.xtc_probability = nan; }},
      {"xtc_threshold",
       "0.75",
       [](auto& o) { o.sampling.xtc_threshold = 0.75f; }},
      {"xtc_threshold", "-1", [](auto& o) { o.sampling.xtc_threshold = -1; }},
      {"xtc_special_tokens",
       "100",
       [](auto& o) { o.sampling.xtc_special_tokens = {{100}}; }},
      {"repetition_penalty",
       "-1",
       [](auto& o) { o.sampling.repetition_penalty = -1; }},
      {"repetition_penalty",
       "nan",
       [=](auto& o) { o.sampling.repetition_penalty = nan; }},
      {"repetition_penalty",
       "inf",
       [=](auto& o) { o.sampling.repetition_penalty = inf; }},
      {"repetition_context_size",
       "-2",
       [](auto& o) { o.sampling.repetition_context_size = -2; }},
      {"presence_penalty",
       "2.5",
       [](auto& o) { o.sampling.presence_penalty = 2.5f; }},
      {"presence_penalty",
       "nan",
       [=](auto& o) { o.sampling.presence_penalty = nan; }},
      {"frequency_penalty",
       "-2.5",
       [](auto& o) { o.sampling.frequency_penalty = -2.5f; }},
      {"penalty_context_size",
       "-1",
       [](auto& o) { o.sampling.penalty_context_size = -1; }},
      {"logit_bias", "-1", [](auto& o) { o.sampling.logit_bias = {{-1, 1}}; }},
      {"logit_bias",
       "100",
       [](auto& o) { o.sampling.logit_bias = {{100, 1}}; }},
      {"logit_bias",
       "999999999",
       [](auto& o) { o.sampling.logit_bias = {{999999999, 1}}; }},
      {"logit_bias",
       "nan",
       [=](auto& o) { o.sampling.logit_bias = {{5, nan}}; }},
      {"max_tokens", "-1", [](auto& o) { o.max_tokens = -1; }},
      {"prefill_step_size", "0", [](auto& o) { o.prefill_step_size = 0; }},
      {"max_kv_size", "-5", [](auto& o) { o.max_kv_size = -5; }},
      {"stop", "empty", [](auto& o) { o.stop = {"a", ""}; }},
      {"stop", "\\xff", [](auto& o) { o.stop = {"a\xff"}; }},
  };
  for (const BadOption& bad : cases) {
    GenerateOptions options;
    bad.set(options);
    try {
      validate(options, kVocabulary);
      ADD_FAILURE() << bad.name << " " << bad.value << " was accepted";
    } catch (const Error& error) {
      std::string what = error.what();
      EXPECT_EQ(error.kind(), ErrorKind::invalid_request) << what;
      EXPECT_EQ(what.rfind("[" + std::string(bad.name) + "] ", 0), 0u) << what;
      EXPECT_NE(what.find(bad.value), std::string::npos) << what;
    }
  }
}

TEST(SamplingOptions, EdgeValuesAreAccepted) {
  GenerateOptions options;
  options.max_tokens = 0;
  options.sampling.top_p = 0;
  options.sampling.min_p = 1;
  options.sampling.top_k = INT_MAX;
  options.sampling.min_tokens_to_keep = INT_MAX;
  options.sampling.xtc_probability = 1;
  options.sampling.xtc_threshold = 0.5f;
  options.sampling.presence_penalty = -2;
  options.sampling.frequency_penalty = 2;
  options.sampling.logit_bias = {{0, -1000}, {99, 1000}};
  options.stop = {"\n\n", "終"};
  EXPECT_NO_THROW(validate(options, kVocabulary));
}

TEST(SamplingOptions, TokensAreCheckedOnceTheVocabularyIsKnown) {
  SamplingOptions options;
  options.logit_bias = {{100000, 1}};
  EXPECT_NO_THROW(validate(options, 0));
  EXPECT_THROW(validate(options, kVocabulary), Error);
}

TEST(SamplingOptions, AGivenSeedIsKeptAndOthersAreFresh) {
  for (int64_t seed : {int64_t{0}, int64_t{-1}, INT64_MAX, INT64_MIN}) {
    SamplingOptions options;
    options.seed = seed;
    EXPECT_EQ(resolve_seed(options), seed);
  }
  int64_t first = resolve_seed({});
  EXPECT_GE(first, 0);
  EXPECT_NE(first, resolve_seed({}));
}

}  // namespace
}  // namespace mlxx::generate
