// The program with the default model.
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "mlxx/base/json.h"
#include "mlxx/base/utf8.h"
#include "tests/apps/child_process.h"
#include "tests/apps/default_model.h"

namespace mlxx::apps {
namespace {

constexpr const char* kQuestion = "What is the capital of France?";

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

class Answers : public DefaultModelTest {
 protected:
  ChildOptions options(std::vector<std::string> arguments) {
    ChildOptions options;
    options.arguments = {arguments.front(), "-m", model_};
    options.arguments.insert(
        options.arguments.end(),
        arguments.begin() + 1,
        arguments.end());
    return options;
  }
  ChildResult run(std::vector<std::string> arguments) {
    return run_mlxx(options(std::move(arguments)));
  }
  void expect_refusal(
      std::vector<std::string> arguments,
      int exit_code,
      const std::string& part) {
    auto result = run(std::move(arguments));
    EXPECT_EQ(result.exit_code, exit_code) << result.err;
    EXPECT_TRUE(is_error_line(result.err)) << result.err;
    EXPECT_TRUE(contains(result.err, part)) << result.err;
    EXPECT_EQ(result.out, "");
  }
};

TEST_F(Answers, GenerateSaysParis) {
  auto result = run({"generate", kQuestion, "--max-tokens", "24"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_TRUE(contains(result.out, "Paris")) << result.out;
  EXPECT_TRUE(result.out.ends_with('\n'));
  EXPECT_TRUE(contains(result.err, "tok/s")) << result.err;
  EXPECT_TRUE(contains(result.err, "peak memory")) << result.err;
  EXPECT_FALSE(contains(result.out + result.err, "\x1b"));
}

TEST_F(Answers, QuietPrintsTheAnswerAlone) {
  auto result = run({"generate", kQuestion, "--max-tokens", "8", "--quiet"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.err, "");
  ChildOptions piped =
      options({"generate", "-p", "-", "--max-tokens", "8", "--quiet"});
  piped.input = kQuestion;
  EXPECT_EQ(run_mlxx(piped).out, result.out);
}

// With plain operations: `on` computes layer by layer, which our kernels
// otherwise do not.
TEST_F(Answers, CompiledDecodingGivesTheSameAnswer) {
  auto answer = [&](const char* when) {
    ChildOptions child = options(
        {"generate",
         kQuestion,
         "--max-tokens",
         "4",
         "--json",
         "--temp",
         "0.7",
         "--seed",
         "7",
         "--compile-decode",
         when});
    child.environment["MLXX_KERNEL"] = "fallback";
    auto result = run_mlxx(child);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return parse_json(result.out, "stdout");
  };
  Json plain = answer("off");
  Json compiled = answer("on");
  EXPECT_EQ(plain["compiled_steps"], 0);
  EXPECT_TRUE(compiled["compile_fallback"].is_null());
  EXPECT_GE(compiled["compiled_steps"], compiled["generated_tokens"]);
  EXPECT_EQ(compiled["text"], plain["text"]);
}

TEST_F(Answers, JsonIsOneObjectWithTimings) {
  auto result = run(
      {"generate", kQuestion, "--max-tokens", "5", "--json", "--seed", "7"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.err, "");
  Json json = parse_json(result.out, "stdout");
  EXPECT_EQ(json["model"], model_);
  EXPECT_EQ(json["generated_tokens"], 5);
  EXPECT_GT(json["prompt_tokens"], 5);
  EXPECT_EQ(json["finish_reason"], "length");
  EXPECT_EQ(json["seed"], 7);
  EXPECT_FALSE(json["text"].get<std::string>().empty());
  EXPECT_GT(json["peak_memory_bytes"], 0);
  const Json& seconds = json["seconds"];
  EXPECT_GE(seconds["load"], seconds["weights"]);
  EXPECT_GE(
      seconds["first_token"].get<double>(),
      seconds["load"].get<double>() + seconds["prefill"].get<double>());
  EXPECT_GE(seconds["total"], seconds["first_token"]);
}

TEST_F(Answers, StopStringsEndTheAnswer) {
  auto result = run(
      {"generate",
       kQuestion,
       "--max-tokens",
       "24",
       "--stop",
       "Paris",
       "--json"});
  Json json = parse_json(result.out, "stdout");
  EXPECT_EQ(json["finish_reason"], "stop");
  EXPECT_EQ(json["stop_sequence"], "Paris");
  EXPECT_FALSE(contains(json["text"], "Paris"));
}

TEST_F(Answers, NoTokensAreNoError) {
  auto result = run({"generate", kQuestion, "--max-tokens", "0", "--quiet"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, "\n");
}

TEST_F(Answers, SameSeedSameAnswer) {
  std::vector<std::string> arguments{
      "generate",
      "Tell me a story.",
      "--temp",
      "1",
      "--seed",
      "3",
      "--max-tokens",
      "12",
      "--quiet"};
  auto first = run(arguments);
  EXPECT_EQ(first.out, run(arguments).out);
  arguments[5] = "4";
  EXPECT_NE(first.out, run(arguments).out);
}

TEST_F(Answers, RawContinuesAndPrefillIsGoneOnFrom) {
  auto raw = run(
      {"generate",
       "--raw",
       "The capital of France is",
       "--max-tokens",
       "3",
       "-q"});
  EXPECT_EQ(raw.exit_code, 0) << raw.err;
  EXPECT_TRUE(contains(raw.out, "Paris")) << raw.out;
  auto prefilled = run(
      {"generate",
       kQuestion,
       "--prefill-response",
       "The capital of France is",
       "--max-tokens",
       "3",
       "-q"});
  EXPECT_EQ(prefilled.exit_code, 0) << prefilled.err;
  EXPECT_TRUE(contains(prefilled.out, "Paris")) << prefilled.out;
}

TEST_F(Answers, ExtraEosToken) {
  auto result = run(
      {"generate",
       "--raw",
       "One two",
       "--extra-eos-token",
       "<nothing like it>",
       "-q"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_TRUE(contains(result.err, "<nothing like it>")) << result.err;
}

TEST_F(Answers, ATemplateThatRaises) {
  expect_refusal(
      {"generate",
       "hi",
       "--chat-template",
       "{{ raise_exception('roles must alternate') }}"},
      2,
      "roles must alternate");
  expect_refusal({"generate", "hi", "--chat-template", "{% if %}"}, 1, "[");
}

TEST_F(Answers, PromptLongerThanTheContext) {
  ChildOptions long_prompt = options({"generate", "-p", "-"});
  for (int i = 0; i < 20'000; ++i) {
    long_prompt.input += "word ";
  }
  auto result = run_mlxx(long_prompt);
  EXPECT_EQ(result.exit_code, 2) << result.err;
  EXPECT_TRUE(is_error_line(result.err)) << result.err;
  EXPECT_TRUE(contains(result.err, "the model's context holds")) << result.err;
}

TEST_F(Answers, TokenIdsOutsideTheVocabulary) {
  expect_refusal(
      {"generate", "hi", "--logit-bias", "{\"100000000\": 1}"},
      2,
      "logit_bias");
}

TEST_F(Answers, ClosedPipeEndsQuietly) {
  auto closed = options({"generate", "Tell me a story.", "--max-tokens", "64"});
  closed.stdout_path = kClosedPipe;
  auto result = run_mlxx(closed);
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.err, "");
}

// Ctrl-C keeps what there is, and says so.
TEST_F(Answers, InterruptEndsCleanly) {
  auto endless = options(
      {"generate",
       "Count to a thousand.",
       "--max-tokens",
       "4000",
       "--logit-bias",
       "{\"2\": -100}"});
  endless.interrupt_after = 10;
  auto result = run_mlxx(endless);
  EXPECT_EQ(result.exit_code, 130);
  EXPECT_TRUE(result.out.ends_with('\n'));
  EXPECT_TRUE(is_valid_utf8(result.out));
  EXPECT_TRUE(contains(result.err, "interrupted")) << result.err;
}

TEST_F(Answers, ShowDescribesTheModel) {
  auto result = run({"show", "--json"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  Json json = parse_json(result.out, "stdout");
  EXPECT_EQ(json["model_type"], "llama");
  EXPECT_EQ(json["format"], "gguf");
  EXPECT_EQ(json["supported"], true);
  EXPECT_EQ(json["layers"], 30);
  EXPECT_EQ(json["kv_heads"], 3);
  EXPECT_EQ(json["context_length"], 8192);
  EXPECT_EQ(json["tokenizer_size"], 49152);
  EXPECT_TRUE(json["stored"].contains("Q4_1")) << result.out;
  EXPECT_EQ(
      json["stored"]["Q4_1"]["resident_forms"],
      Json({"4-bit affine in groups of 32"}));
  EXPECT_EQ(
      json["stored"]["Q4_1"]["resident_bytes"],
      json["stored"]["Q4_1"]["bytes"]);
  EXPECT_TRUE(json["left_out"].empty());
  EXPECT_NEAR(json["parameters"].get<double>(), 134.5e6, 1e6);
  EXPECT_FALSE(json["chat_templates"].empty());
  EXPECT_TRUE(json["chat_template_error"].is_null());
  EXPECT_FALSE(json["eos_ids"].empty());
  auto text = run({"show"});
  EXPECT_TRUE(contains(text.out, "bits per weight; in memory 4-bit affine"))
      << text.out;
}

TEST_F(Answers, ChatFromAPipeRemembers) {
  auto chat = options({"chat", "--quiet", "--max-tokens", "20"});
  chat.input = std::string(kQuestion) + "\n\n/help\n/rest\n";
  auto result = run_mlxx(chat);
  EXPECT_TRUE(contains(result.out, "Paris")) << result.out;
  EXPECT_TRUE(contains(result.err, "did you mean /reset?")) << result.err;
  EXPECT_EQ(result.exit_code, 2);
}

// The second turn reads only what is new.
TEST_F(Answers, ChatKeepsItsState) {
  auto chat = options({"chat", "--max-tokens", "8"});
  chat.input = std::string(kQuestion) +
      "\nAnd of Spain?\n/reset\nHi\n/exit\n"
      "never read\n";
  auto result = run_mlxx(chat);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_TRUE(contains(result.err, " kept)")) << result.err;
  EXPECT_TRUE(contains(result.err, "forgotten")) << result.err;
  size_t summaries = 0;
  for (size_t at = 0;
       (at = result.err.find("peak memory", at)) != std::string::npos;
       ++at) {
    ++summaries;
  }
  EXPECT_EQ(summaries, 3u) << result.err;
}

TEST_F(Answers, ChatRefusesInvalidUtf8) {
  auto chat = options({"chat", "--quiet"});
  chat.input = "ab\xFF\n";
  auto result = run_mlxx(chat);
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_TRUE(is_error_line(result.err)) << result.err;
}

}  // namespace
}  // namespace mlxx::apps
