#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/apps/child_process.h"

namespace mlxx::apps {
namespace {

const std::vector<std::string> kVerbs = {
    "generate",
    "chat",
    "embed",
    "rerank",
    "train",
    "fuse",
    "eval",
    "show",
    "fit",
    "list",
    "pull",
    "rm",
    "bench",
    "logits",
    "doctor",
    "runtime",
    "completions"};

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// Runs and expects one error line that holds `part`.
void expect_refusal(
    std::vector<std::string> arguments,
    int exit_code,
    const std::string& part) {
  auto result = run_mlxx(arguments);
  std::string shown;
  for (const std::string& argument : arguments) {
    shown += " " + argument;
  }
  EXPECT_EQ(result.exit_code, exit_code) << shown << "\n" << result.err;
  EXPECT_TRUE(is_error_line(result.err)) << shown << "\n" << result.err;
  EXPECT_TRUE(contains(result.err, part)) << shown << "\n" << result.err;
  EXPECT_EQ(result.out, "") << shown;
}

TEST(Help, OfTheProgramNamesEveryVerb) {
  for (const char* flag : {"--help", "-h"}) {
    auto result = run_mlxx({flag});
    EXPECT_EQ(result.exit_code, 0);
    EXPECT_EQ(result.err, "");
    for (const std::string& verb : kVerbs) {
      EXPECT_TRUE(contains(result.out, "\n  " + verb + " ")) << verb;
    }
  }
}

TEST(Help, OfEveryVerb) {
  for (const std::string& verb : kVerbs) {
    auto result = run_mlxx({verb, "--help"});
    EXPECT_EQ(result.exit_code, 0) << verb << result.err;
    EXPECT_EQ(result.err, "") << verb;
    EXPECT_TRUE(contains(result.out, "Usage: mlxx " + verb)) << result.out;
    EXPECT_TRUE(contains(result.out, "Example")) << result.out;
    // `runtime` is the thin program's own and logs nothing.
    EXPECT_EQ(contains(result.out, "--log-level"), verb != "runtime")
        << result.out;
    EXPECT_FALSE(contains(result.out, "\x1b")) << verb;
  }
}

TEST(Eval, SaysWhatItNeedsBeforeItLoadsAModel) {
  EXPECT_EQ(run_mlxx({"eval"}).exit_code, 2);
  expect_refusal({"eval", "kl", "a.txt"}, 2, "--reference");
  expect_refusal({"eval", "perplexity"}, 2, "FILE");
  expect_refusal(
      {"eval", "tasks", "/nowhere/at/all.jsonl"},
      1,
      "/nowhere/at/all.jsonl");
  expect_refusal({"eval", "perplexity", "a.txt", "--length", "1"}, 2, "1");
}

TEST(Help, AsAVerb) {
  EXPECT_EQ(run_mlxx({"help"}).out, run_mlxx({"--help"}).out);
  auto result = run_mlxx({"help", "show"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, run_mlxx({"show", "--help"}).out);
}

TEST(Help, OfGenerateShowsGroupsAndDefaults) {
  auto result = run_mlxx({"generate", "--help"});
  for (const char* part :
       {"Sampling:",
        "Prompt:",
        "Model:",
        "[default: smollm2]",
        "[default: 512]",
        "[default: 2048]",
        "[may be repeated]",
        "-p, --prompt TEXT"}) {
    EXPECT_TRUE(contains(result.out, part)) << part << "\n" << result.out;
  }
}

TEST(Help, WithoutAVerbGoesToStderr) {
  auto result = run_mlxx(std::vector<std::string>{});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_EQ(result.out, "");
  EXPECT_TRUE(contains(result.err, "Usage: mlxx"));
}

TEST(Version, NamesMlxAndTheCommit) {
  auto result = run_mlxx({"--version"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_TRUE(result.out.starts_with("mlxx ")) << result.out;
  EXPECT_TRUE(contains(result.out, "commit ")) << result.out;
  EXPECT_TRUE(contains(result.out, "MLX 0.32.4")) << result.out;
  EXPECT_TRUE(contains(result.out, "features: ")) << result.out;
}

TEST(WrongUse, UnknownNamesGetASuggestion) {
  expect_refusal({"genrate", "hi"}, 2, "did you mean generate?");
  expect_refusal({"generate", "hi", "--tmp", "1"}, 2, "did you mean --temp?");
  expect_refusal({"generate", "--max-token", "3", "hi"}, 2, "--max-tokens");
  expect_refusal({"show", "--jsno"}, 2, "did you mean --json?");
  expect_refusal({"--versoin"}, 2, "did you mean --version?");
  expect_refusal({"--frobnicate"}, 2, "--help");
  expect_refusal({"transmogrify"}, 2, "--help");
}

TEST(WrongUse, SurplusArguments) {
  expect_refusal({"generate", "hello", "world"}, 2, "needs quotes");
}

TEST(WrongUse, ValuesThatAreNoNumbers) {
  expect_refusal({"generate", "hi", "--max-tokens", "x"}, 2, "--max-tokens");
  expect_refusal({"generate", "hi", "--max-tokens", "1.5"}, 2, "--max-tokens");
  expect_refusal(
      {"generate", "hi", "--max-tokens", "99999999999999999999"},
      2,
      "--max-tokens");
  expect_refusal({"generate", "hi", "--temp", ""}, 2, "--temp");
  expect_refusal({"generate", "hi", "--temp"}, 2, "--temp");
  expect_refusal({"generate", "hi", "--seed", "abc"}, 2, "--seed");
}

TEST(WrongUse, ImpossibleValues) {
  expect_refusal({"generate", "hi", "--max-tokens", "-1"}, 2, "max_tokens");
  expect_refusal({"generate", "hi", "--temp", "-1"}, 2, "temperature");
  expect_refusal({"generate", "hi", "--temp=nan"}, 2, "temperature");
  expect_refusal({"generate", "hi", "--top-p", "2"}, 2, "top_p");
  expect_refusal(
      {"generate", "hi", "--chat-template-config", "{oops"},
      2,
      "--chat-template-config");
  expect_refusal({"chat", "--temp", "-1"}, 2, "temperature");
  expect_refusal({"generate", "hi", "-p", "there"}, 2, "given twice");
  expect_refusal({"generate"}, 2, "PROMPT");
}

TEST(WrongUse, LogLevels) {
  expect_refusal({"show", "x", "--log-level", "debgu"}, 2, "mean debug?");
  ChildOptions options;
  options.arguments = {"show", "x"};
  options.environment["MLXX_LOG"] = "loud";
  auto result = run_mlxx(options);
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_TRUE(contains(result.err, "[MLXX_LOG]")) << result.err;
}

TEST(WrongUse, HostileArgumentsStayOneLine) {
  expect_refusal({"a\nb\x1b[2J"}, 2, "\\n");
  expect_refusal({"--x\ny"}, 2, "\\n");
  expect_refusal({"generate", "hi", "--max-tokens", "1\n2"}, 2, "\\n");
  expect_refusal({std::string(5000, 'x')}, 2, "...");
  expect_refusal({"\xFF\xFE"}, 2, "\\xff");
  expect_refusal({"generate", "ab\xFF"}, 2, "not valid UTF-8");
  expect_refusal({"show", "ab\xFF"}, 2, "not valid UTF-8");
}

// An empty value after "=" is the value, not the next argument.
TEST(WrongUse, EmptyValueDoesNotSwallowThePrompt) {
  expect_refusal({"generate", "--temp=", "hi"}, 2, "--temp");
  expect_refusal({"generate", "--logit-bias=", "hi"}, 2, "--logit-bias");
}

TEST(Stdin, InvalidUtf8IsRefused) {
  ChildOptions options;
  options.arguments = {"generate", "-p", "-"};
  options.input = "hello \xC3(";
  auto result = run_mlxx(options);
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_TRUE(is_error_line(result.err)) << result.err;
  EXPECT_TRUE(contains(result.err, "[stdin]")) << result.err;
  EXPECT_TRUE(contains(result.err, "offset 6")) << result.err;
}

TEST(Output, ClosedPipeIsNoError) {
  for (const char* verb : {"--help", "--version"}) {
    ChildOptions options;
    options.arguments = {verb};
    options.stdout_path = kClosedPipe;
    auto result = run_mlxx(options);
    EXPECT_EQ(result.exit_code, 0) << verb;
    EXPECT_EQ(result.err, "") << verb;
  }
}

TEST(Output, FullDiskIsAnError) {
  ChildOptions options;
  options.arguments = {"generate", "--help"};
  options.stdout_path = "/dev/full";
  auto result = run_mlxx(options);
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_TRUE(is_error_line(result.err)) << result.err;
}

TEST(Completions, ForEachShell) {
  for (const char* shell : {"bash", "zsh", "fish"}) {
    auto result = run_mlxx({"completions", shell});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    for (const std::string& verb : kVerbs) {
      EXPECT_TRUE(contains(result.out, verb)) << shell << " " << verb;
    }
  }
  expect_refusal({"completions", "tcsh"}, 2, "bash, zsh, fish");
  expect_refusal({"completions"}, 2, "SHELL");
}

// A prompt that is a verb's name is a prompt: what is missing is the model.
TEST(Verbs, APromptMayBeAVerb) {
  expect_refusal({"generate", "list", "-m", "no/such"}, 1, "no/such");
}

}  // namespace
}  // namespace mlxx::apps
