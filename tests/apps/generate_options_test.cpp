#include "apps/mlxx/generate_options.h"

#include <cstdio>
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "mlxx/base/error.h"

namespace mlxx::apps {
namespace {

// Parses as `mlxx generate ARGUMENTS` does, without running it.
GenerateCommandOptions parse(std::vector<std::string> arguments) {
  GenerateCommandOptions options;
  CLI::App app;
  add_generate_options(app, options);
  std::reverse(arguments.begin(), arguments.end());
  app.parse(arguments);
  finish_generate_options(options);
  return options;
}

// The message of the Error, or "" if there was none of that kind.
std::string refusal(
    std::vector<std::string> arguments,
    ErrorKind kind = ErrorKind::invalid_request) {
  try {
    parse(std::move(arguments));
  } catch (const Error& error) {
    return error.kind() == kind ? error.what() : "";
  }
  return "";
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(GenerateOptions, DefaultsAreGreedyOnTheDefaultModel) {
  auto options = parse({"hello"});
  EXPECT_EQ(read_prompt(options), "hello");
  EXPECT_EQ(options.answer.model, hub::kDefaultModel);
  EXPECT_EQ(options.answer.generate.max_tokens, 512);
  EXPECT_EQ(options.answer.generate.sampling.temperature, 0);
  EXPECT_EQ(options.answer.generate.sampling.top_p, 1);
  EXPECT_EQ(options.answer.generate.sampling.min_tokens_to_keep, 1);
  EXPECT_FLOAT_EQ(options.answer.generate.sampling.xtc_threshold, 0.1f);
  EXPECT_EQ(options.answer.generate.prefill_step_size, 2048);
  EXPECT_FALSE(options.answer.generate.sampling.seed);
  EXPECT_TRUE(options.answer.generate.stop.empty());
}

TEST(GenerateOptions, CompileDecodeIsAutoOnOrOff) {
  using generate::CompileDecode;
  auto given = [](const char* name) {
    return parse({"hello", "--compile-decode", name})
        .answer.generate.compile_decode;
  };
  EXPECT_EQ(
      parse({"hello"}).answer.generate.compile_decode,
      CompileDecode::automatic);
  EXPECT_EQ(given("auto"), CompileDecode::automatic);
  EXPECT_EQ(given("on"), CompileDecode::on);
  EXPECT_EQ(given("off"), CompileDecode::off);
  EXPECT_TRUE(contains(
      refusal({"hello", "--compile-decode", "fast"}),
      "[compile_decode] must be 'auto', 'on' or 'off', found 'fast'"));
}

TEST(GenerateOptions, EveryOptionArrives) {
  auto options = parse(
      {"-m",
       "org/repo",
       "--prompt",
       "hi",
       "--system-prompt",
       "be brief",
       "--max-tokens",
       "7",
       "--temp",
       "0.5",
       "--top-p",
       "0.9",
       "--min-p",
       "0.05",
       "--top-k",
       "40",
       "--xtc-probability",
       "0.25",
       "--xtc-threshold",
       "0.2",
       "--min-tokens-to-keep",
       "2",
       "--seed",
       "0",
       "--stop",
       "a",
       "--stop",
       "b",
       "--chat-template-config",
       "{\"enable_thinking\": false}",
       "--prefill-response",
       "Sure",
       "--extra-eos-token",
       "</s>",
       "--extra-eos-token",
       "<end>",
       "--prefill-step-size",
       "64",
       "--max-kv-size",
       "128",
       "--repetition-penalty",
       "1.1",
       "--repetition-context-size",
       "30",
       "--presence-penalty",
       "0.5",
       "--frequency-penalty",
       "-0.5",
       "--penalty-context-size",
       "10",
       "--logit-bias",
       "{\"5\": -100, \"7\": 1.5}",
       "--quiet",
       "--json"});
  const auto& generate = options.answer.generate;
  const auto& sampling = generate.sampling;
  EXPECT_EQ(options.answer.model, "org/repo");
  EXPECT_EQ(options.answer.system_prompt, "be brief");
  EXPECT_EQ(generate.max_tokens, 7);
  EXPECT_FLOAT_EQ(sampling.temperature, 0.5f);
  EXPECT_FLOAT_EQ(sampling.top_p, 0.9f);
  EXPECT_FLOAT_EQ(sampling.min_p, 0.05f);
  EXPECT_EQ(sampling.top_k, 40);
  EXPECT_FLOAT_EQ(sampling.xtc_probability, 0.25f);
  EXPECT_FLOAT_EQ(sampling.xtc_threshold, 0.2f);
  EXPECT_EQ(sampling.min_tokens_to_keep, 2);
  EXPECT_EQ(sampling.seed, 0);
  EXPECT_EQ(generate.stop, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(options.prefill_response, "Sure");
  EXPECT_EQ(
      options.answer.extra_eos_tokens,
      (std::vector<std::string>{"</s>", "<end>"}));
  EXPECT_EQ(generate.prefill_step_size, 64);
  EXPECT_EQ(generate.max_kv_size, 128);
  EXPECT_FLOAT_EQ(sampling.repetition_penalty, 1.1f);
  EXPECT_EQ(sampling.repetition_context_size, 30);
  EXPECT_FLOAT_EQ(sampling.presence_penalty, 0.5f);
  EXPECT_FLOAT_EQ(sampling.frequency_penalty, -0.5f);
  EXPECT_EQ(sampling.penalty_context_size, 10);
  EXPECT_EQ(sampling.logit_bias, (std::map<int, float>{{5, -100}, {7, 1.5f}}));
  EXPECT_TRUE(options.quiet);
  EXPECT_TRUE(options.json);
  auto messages = prompt_messages(options, "hi");
  ASSERT_EQ(messages.size(), 3u);
  EXPECT_EQ(messages[0]["role"], "system");
  EXPECT_EQ(messages[1]["content"], "hi");
  EXPECT_EQ(messages[2]["role"], "assistant");
}

TEST(GenerateOptions, RepeatedOptionsTakeOneValueEach) {
  // The word after a stop string is the prompt, and brackets stay text.
  auto options = parse({"--stop", "[INST]", "--stop", "[a,b]", "[x,y]"});
  EXPECT_EQ(
      options.answer.generate.stop,
      (std::vector<std::string>{"[INST]", "[a,b]"}));
  EXPECT_EQ(read_prompt(options), "[x,y]");
}

TEST(GenerateOptions, PromptsThatLookLikeOptions) {
  EXPECT_EQ(read_prompt(parse({"-p", "--temp"})), "--temp");
  EXPECT_EQ(read_prompt(parse({"--", "-5 + 3 is?"})), "-5 + 3 is?");
  EXPECT_EQ(
      read_prompt(parse({"\\n stays two characters"})),
      "\\n stays two characters");
}

TEST(GenerateOptions, OnePromptIsNeeded) {
  EXPECT_TRUE(contains(refusal({"a", "-p", "b"}), "given twice"));
  EXPECT_TRUE(contains(refusal({}), "-p -"));
}

TEST(GenerateOptions, ImpossibleNumbersAreRefusedBeforeLoading) {
  const std::pair<const char*, const char*> kBad[] = {
      {"--max-tokens", "-1"},
      {"--temp", "-1"},
      {"--temp", "nan"},
      {"--temp", "inf"},
      {"--top-p", "2"},
      {"--top-p", "-0.1"},
      {"--top-p", "nan"},
      {"--top-k", "-1"},
      {"--min-p", "1.5"},
      {"--min-tokens-to-keep", "0"},
      {"--xtc-probability", "2"},
      {"--xtc-threshold", "0.6"},
      {"--prefill-step-size", "0"},
      {"--max-kv-size", "-1"},
      {"--repetition-penalty", "-1"},
      {"--presence-penalty", "3"},
      {"--frequency-penalty", "nan"},
      {"--stop", ""}};
  for (const auto& [name, value] : kBad) {
    EXPECT_NE(refusal({"hi", name, value}), "") << name << " " << value;
  }
}

TEST(GenerateOptions, JsonOptionsAreChecked) {
  for (const char* text : {"{", "[1]", "1", "nope", "{\"a\": 1} x"}) {
    EXPECT_TRUE(contains(
        refusal({"hi", "--chat-template-config", text}),
        "--chat-template-config"))
        << text;
    EXPECT_TRUE(contains(refusal({"hi", "--logit-bias", text}), "--logit-bias"))
        << text;
  }
  EXPECT_TRUE(contains(
      refusal({"hi", "--logit-bias", "{\"x\": 1}"}),
      "not a token id"));
  EXPECT_TRUE(contains(
      refusal({"hi", "--logit-bias", "{\"1\": \"x\"}"}),
      "not a number"));
  EXPECT_TRUE(
      contains(refusal({"hi", "--logit-bias", "{\"-1\": 1}"}), "logit_bias"));
}

TEST(GenerateOptions, RawLeavesNoPlaceForTemplateOptions) {
  for (const char* name :
       {"--system-prompt", "--prefill-response", "--chat-template"}) {
    EXPECT_TRUE(contains(refusal({"hi", "--raw", name, "{x}"}), name)) << name;
  }
  EXPECT_TRUE(parse({"hi", "--ignore-chat-template"}).raw);
}

TEST(GenerateOptions, InvalidUtf8IsFound) {
  EXPECT_TRUE(contains(
      refusal({"hi", "--system-prompt", "ab\xFF"}),
      "found byte 0xff at offset 2"));
  EXPECT_TRUE(contains(refusal({"hi", "--stop", "\xC3"}), "offset 0"));
  auto options = parse({"gr\xC3\xBC\xC3\x9F dich \xE2\x82"});
  try {
    read_prompt(options);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::invalid_request);
    EXPECT_TRUE(contains(error.what(), "0xe2 at offset 12")) << error.what();
  }
}

TEST(GenerateOptions, ChatTemplateIsAFileOrAText) {
  EXPECT_EQ(
      parse({"hi", "--chat-template", "{{ messages }}"}).answer.chat_template,
      "{{ messages }}");
  auto path = std::filesystem::temp_directory_path() / "mlxx_template.jinja";
  std::ofstream(path) << "{{ bos_token }}";
  EXPECT_EQ(
      parse({"hi", "--chat-template", path.string()}).answer.chat_template,
      "{{ bos_token }}");
  std::filesystem::remove(path);
  EXPECT_TRUE(contains(
      refusal(
          {"hi", "--chat-template", "/no/such/file.jinja"},
          ErrorKind::not_found),
      "/no/such/file.jinja"));
}

}  // namespace
}  // namespace mlxx::apps
