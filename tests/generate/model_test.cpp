// What the default model answers, end to end.

#include <cstdlib>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "mlxx/base/environment.h"
#include "mlxx/generate/generate.h"
#include "mlxx/hub/resolve.h"

namespace mlxx::generate {
namespace {

class DefaultModel : public ::testing::Test {
 protected:
  // Loaded once. Without the variables there is no model to ask for.
  static void SetUpTestSuite() {
    auto file = environment("MLXX_TEST_GGUF");
    if (!file && !environment("MLXX_HOME")) {
      return;
    }
    auto path = file ? std::filesystem::path(*file)
                     : hub::resolve_model(hub::kDefaultModel);
    pipeline =
        std::make_unique<Pipeline>(load_pipeline(hub::open_checkpoint(path)));
  }
  static void TearDownTestSuite() {
    pipeline.reset();
  }
  void SetUp() override {
    if (!pipeline) {
      GTEST_SKIP() << "neither MLXX_TEST_GGUF nor MLXX_HOME is set";
    }
  }

  static OrderedJson user(const std::string& content) {
    return {{"role", "user"}, {"content", content}};
  }
  static std::vector<int32_t> chat(const std::string& content) {
    return encode_chat_prompt(*pipeline, OrderedJson::array({user(content)}));
  }

  static std::unique_ptr<Pipeline> pipeline;
  static constexpr const char* kQuestion = "What is the capital of France?";
};

std::unique_ptr<Pipeline> DefaultModel::pipeline;

TEST_F(DefaultModel, KnowsTheCapitalOfFrance) {
  std::string streamed;
  auto result =
      generate(*pipeline, chat(kQuestion), {}, [&](const Delta& delta) {
        streamed += delta.text;
        return true;
      });
  EXPECT_NE(result.text.find("Paris"), std::string::npos) << result.text;
  EXPECT_EQ(result.text.find("<|im_end|>"), std::string::npos) << result.text;
  EXPECT_EQ(streamed, result.text);
  EXPECT_EQ(result.finish_reason, FinishReason::stop);
  EXPECT_EQ(pipeline->tokenizer->decode(result.tokens), result.text);
  EXPECT_LT(result.generated_tokens, 64);
}

TEST_F(DefaultModel, StopsBeforeAStopString) {
  auto whole = generate(*pipeline, chat(kQuestion), {});
  auto at = whole.text.find("Paris");
  ASSERT_NE(at, std::string::npos);
  for (const char* stop : {"Paris", " Par", "ari"}) {
    GenerateOptions options;
    options.stop = {"nothing of the kind", stop};
    auto result = generate(*pipeline, chat(kQuestion), options);
    EXPECT_EQ(result.text, whole.text.substr(0, whole.text.find(stop)));
    EXPECT_EQ(result.stop_sequence, stop);
    EXPECT_EQ(result.finish_reason, FinishReason::stop);
  }
}

TEST_F(DefaultModel, MaxTokensIsExact) {
  auto whole = generate(*pipeline, chat(kQuestion), {});
  for (int n : {0, 1, 2}) {
    GenerateOptions options;
    options.max_tokens = n;
    auto result = generate(*pipeline, chat(kQuestion), options);
    EXPECT_EQ(
        result.tokens,
        std::vector<int32_t>(whole.tokens.begin(), whole.tokens.begin() + n));
    EXPECT_EQ(result.finish_reason, FinishReason::length);
  }
}

TEST_F(DefaultModel, ASeedGivesTheSameAnswerAgain) {
  GenerateOptions options;
  options.max_tokens = 24;
  options.sampling.temperature = 1;
  options.sampling.top_p = 0.95f;
  auto prompt = chat("Write one sentence about the sea.");
  auto answer = [&](int64_t seed) {
    options.sampling.seed = seed;
    return generate(*pipeline, prompt, options).text;
  };
  auto first = answer(1);
  EXPECT_EQ(answer(1), first);
  EXPECT_NE(answer(2), first);
  EXPECT_EQ(answer(0), answer(0));
}

TEST_F(DefaultModel, SeveralTurnsEqualTheirColdRuns) {
  GenerateOptions options;
  options.max_tokens = 32;
  Sequence sequence;
  auto messages = OrderedJson::array();
  for (const char* question :
       {kQuestion, "And of Italy?", "Which of the two is larger?"}) {
    messages.push_back(user(question));
    auto prompt = encode_chat_prompt(*pipeline, messages);
    auto warm = generate(*pipeline, prompt, sequence, options);
    auto cold = generate(*pipeline, prompt, options);
    EXPECT_EQ(warm.text, cold.text);
    if (messages.size() > 1) {
      EXPECT_GT(warm.cached_tokens, warm.prompt_tokens / 2);
    }
    messages.push_back({{"role", "assistant"}, {"content", warm.text}});
  }
}

TEST_F(DefaultModel, ChunkSizeDoesNotChangeTheAnswer) {
  GenerateOptions options;
  options.max_tokens = 16;
  auto whole = generate(*pipeline, chat(kQuestion), options);
  for (int step : {1, 7}) {
    options.prefill_step_size = step;
    EXPECT_EQ(generate(*pipeline, chat(kQuestion), options).text, whole.text);
  }
}

TEST_F(DefaultModel, GoesOnFromAPrefilledAnswer) {
  auto messages = OrderedJson::array({user(kQuestion)});
  messages.push_back(
      {{"role", "assistant"}, {"content", "The city you ask for is"}});
  text::RenderOptions render;
  render.continue_final_message = true;
  GenerateOptions options;
  options.max_tokens = 8;
  auto result = generate(
      *pipeline,
      encode_chat_prompt(*pipeline, messages, render),
      options);
  EXPECT_NE(result.text.find("Paris"), std::string::npos) << result.text;
}

TEST_F(DefaultModel, PenaltiesChangeAGreedyAnswer) {
  auto prompt = encode_raw_prompt(*pipeline, "one two one two one two one two");
  GenerateOptions options;
  options.max_tokens = 16;
  auto plain = generate(*pipeline, prompt, options);
  options.sampling.frequency_penalty = 2;
  options.sampling.penalty_context_size = 0;
  auto punished = generate(*pipeline, prompt, options);
  EXPECT_NE(plain.text, punished.text);
  Sequence sequence;
  generate(*pipeline, prompt, sequence, {});
  auto warm = generate(*pipeline, prompt, sequence, options);
  EXPECT_GT(warm.cached_tokens, 0);
  EXPECT_EQ(warm.text, punished.text);
}

}  // namespace
}  // namespace mlxx::generate
