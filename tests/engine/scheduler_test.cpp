#include "mlxx/engine/scheduler.h"

#include <gtest/gtest.h>

#include "tests/engine/scheduler_bench.h"

namespace mlxx::engine {
namespace {

using Calls = std::vector<std::string>;

TEST(Scheduler, BeginsTheNextStepBeforeItReadsTheOneBefore) {
  Bench bench;
  bench.runner->answer("a", "xy");
  uint64_t id = bench.submit(make_request("a"));
  bench.run();
  EXPECT_EQ(bench.of(id).text, "xy");
  EXPECT_EQ(bench.of(id).reason(), FinishReason::stop);
  EXPECT_EQ(
      bench.runner->calls(),
      (Calls{
          "open a",
          "begin a",
          "choose a",
          "begin a",
          "choose a",
          "read a",
          "begin a",
          "choose a",
          "read a",
          "begin a",
          "choose a",
          "read a",
          "read a",
          "close a"}));
}

TEST(Scheduler, NoStepIsBegunPastTheLastToken) {
  Bench bench;
  bench.runner->answer("a", "xyzxyz");
  uint64_t id = bench.submit(make_request("a", 2));
  bench.run();
  EXPECT_EQ(bench.of(id).text, "xy");
  EXPECT_EQ(bench.of(id).reason(), FinishReason::length);
  EXPECT_EQ(
      bench.runner->calls(),
      (Calls{
          "open a",
          "begin a",
          "choose a",
          "begin a",
          "choose a",
          "read a",
          "read a",
          "close a"}));
}

TEST(Scheduler, CountsWhatWasUsed) {
  Bench bench;
  bench.runner->answer("prompt", "xy");
  bench.runner->cached[bytes("prompt")] = 3;
  uint64_t id = bench.submit(make_request("prompt"));
  bench.run();
  const Usage& usage = bench.of(id).finish->usage;
  EXPECT_EQ(usage.prompt_tokens, 6);
  EXPECT_EQ(usage.cached_tokens, 3);
  EXPECT_EQ(usage.completion_tokens, 3);       // EOS included
  EXPECT_EQ(bench.of(id).ids(), bytes("xy"));  // EOS not
  EXPECT_EQ(
      bench.runner->closed(),
      (std::vector<std::vector<int32_t>>{
          bytes("prompt") + bytes("xy") + std::vector<int32_t>{kEos}}));
  EngineStats stats = bench.scheduler->stats();
  EXPECT_EQ(stats.prompt_tokens, 6u);
  EXPECT_EQ(stats.cached_tokens, 3u);
  EXPECT_EQ(stats.generated_tokens, 3u);
  EXPECT_EQ(stats.finished, 1u);
  EXPECT_TRUE(stats.healthy);
}

TEST(Scheduler, SharesStepsBetweenRequestsAndAnswersEachAsIfAlone) {
  std::vector<std::string> prompts = {"apple", "b", "cherry pie", "date"};
  std::map<std::string, std::string> alone;
  for (const std::string& prompt : prompts) {
    Bench bench;
    uint64_t id = bench.submit(make_request(prompt));
    bench.run();
    alone[prompt] = bench.of(id).text;
    EXPECT_EQ(alone[prompt], prompt);
  }
  Bench bench;
  std::map<std::string, uint64_t> ids;
  for (const std::string& prompt : prompts) {
    ids[prompt] = bench.submit(make_request(prompt));
  }
  bench.run();
  for (const std::string& prompt : prompts) {
    EXPECT_EQ(bench.of(ids[prompt]).text, alone[prompt]);
  }
  auto calls = bench.runner->calls();
  EXPECT_TRUE(std::any_of(calls.begin(), calls.end(), [](const auto& call) {
    return call.starts_with("begin ") && call.size() == 6 + 4;
  }));
}

TEST(Scheduler, ComputesThePromptOnceForAllChoices) {
  Bench bench;
  std::vector<int64_t> seeds;
  bench.runner->next = [&](const FakeRow& row) {
    if (row.tokens.size() == row.prompt) {
      seeds.push_back(row.settings.seed);
    }
    size_t position = row.tokens.size() - row.prompt;
    return position == 0
        ? int32_t{'0'} + static_cast<int32_t>(row.settings.seed)
        : position == 1 ? int32_t{'!'}
                        : kEos;
  };
  Request request = make_request("a long prompt");
  request.n = 3;
  request.sampling.seed = 5;
  uint64_t id = bench.submit(std::move(request));
  bench.run();
  EXPECT_EQ(bench.of(id, 0).text, "5!");
  EXPECT_EQ(bench.of(id, 1).text, "6!");
  EXPECT_EQ(bench.of(id, 2).text, "7!");
  EXPECT_EQ(seeds, (std::vector<int64_t>{5, 6, 7}));
  auto calls = bench.runner->calls();
  calls.resize(5);
  EXPECT_EQ(
      calls,
      (Calls{"open a", "prefill a 12", "fork a", "fork a", "begin aaa"}));
}

TEST(Scheduler, AdmitsWhatFitsAndLetsNobodyOvertake) {
  Bench bench;
  bench.source.room = 100;
  uint64_t big = bench.submit(make_request("big", 60));
  uint64_t bigger = bench.submit(make_request("next", 96));
  uint64_t small = bench.submit(make_request("x", 2));
  bench.run();
  EXPECT_EQ(bench.finished_order, (std::vector<uint64_t>{big, bigger, small}));
  uint64_t never = bench.submit(make_request("never", 1000));
  uint64_t after = bench.submit(make_request("after", 10));
  bench.run();
  EXPECT_EQ(bench.of(never).reason(), FinishReason::error);
  EXPECT_EQ(bench.of(never).finish->error->kind(), ErrorKind::out_of_memory);
  EXPECT_TRUE(bench.of(never).error().starts_with("[memory_admission]"));
  EXPECT_EQ(bench.of(after).reason(), FinishReason::stop);
  EXPECT_EQ(bench.source.used, 0);
  EXPECT_TRUE(bench.scheduler->stats().healthy);
}

TEST(Scheduler, KeepsToMaxRows) {
  EngineOptions options;
  options.max_rows = 3;
  Bench bench(options);
  size_t most = 0;
  bench.runner->fault = [&](const std::string&, const auto& rows) {
    most = std::max(most, rows.size());
  };
  for (int i = 0; i < 6; ++i) {
    Request request = make_request("prompt" + std::to_string(i));
    request.n = 1 + i % 2;
    bench.submit(std::move(request));
  }
  bench.run();
  EXPECT_EQ(most, 3u);
  EXPECT_EQ(bench.scheduler->stats().finished, 6u);
  Request request = make_request("p");
  request.n = 4;
  EXPECT_THROW(bench.submit(std::move(request)), Error);
}

TEST(Scheduler, RefusesWhatTheModelCannotTake) {
  Bench bench;
  bench.runner->editable_text()->context_length = 10;
  auto error_of = [&](Request request) {
    uint64_t id = bench.submit(std::move(request));
    bench.run();
    EXPECT_EQ(bench.of(id).reason(), FinishReason::error);
    return bench.of(id).error();
  };
  EXPECT_EQ(
      error_of(make_request("0123456789")),
      "[context_length_exceeded] the model's context has 10 tokens, the prompt "
      "alone 10, which leaves no room for an answer");
  Request outside = make_request("a");
  outside.prompt = {5, kVocabulary};
  EXPECT_EQ(
      error_of(outside),
      "[prompt] token ids must be between 0 and 299, got 300 at position 1");
  outside.prompt = {-1};
  EXPECT_TRUE(error_of(outside).starts_with("[prompt] token ids must"));
  Request unknown = make_request("a");
  unknown.model = "another";
  EXPECT_TRUE(error_of(unknown).starts_with("[model] there is no model"));
  Request bias = make_request("a");
  bias.sampling.logit_bias[kVocabulary] = 1;
  EXPECT_TRUE(error_of(bias).starts_with("[logit_bias]"));
  // The answer may take what the prompt leaves.
  uint64_t id = bench.submit(make_request("12345678", 1000));
  bench.run();
  EXPECT_EQ(bench.of(id).text, "12");
  EXPECT_EQ(bench.of(id).reason(), FinishReason::length);
  EXPECT_EQ(bench.scheduler->stats().failed, 5u);
}

}  // namespace
}  // namespace mlxx::engine
