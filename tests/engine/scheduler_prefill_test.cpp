#include <algorithm>

#include <gtest/gtest.h>

#include "tests/engine/scheduler_bench.h"

// Prompts beside decode steps: who waits for whom, and how long.
namespace mlxx::engine {
namespace {

EngineOptions small_steps() {
  EngineOptions options;
  options.prefill_step = 256;
  return options;
}

// Tokens of the chunks of one prompt, and the decode steps between.
struct Chunk {
  std::string row;
  int tokens = 0;
};
std::optional<Chunk> chunk_of(const std::string& call) {
  if (!call.starts_with("prefill ")) {
    return std::nullopt;
  }
  return Chunk{call.substr(8, 1), std::stoi(call.substr(10))};
}

TEST(SchedulerPrefill, ALongPromptHoldsADecodeStepUpForOneChunkOnly) {
  Bench bench(small_steps());
  bench.runner->seconds_per_prompt_token = 0.001;
  bench.runner->seconds_per_step = 0.05;
  bench.runner->answer("d", std::string(400, 'x'));
  bench.submit(make_request("d"));
  bench.run_rounds(20);  // how long a step takes is known by now
  bench.submit(make_request("L" + std::string(4000, 'y'), 1));
  bench.run();
  int between = 0;
  int chunks = 0;
  for (const std::string& call : bench.runner->calls()) {
    if (auto chunk = chunk_of(call)) {
      EXPECT_EQ(between, 0) << "two chunks between two steps";
      ++between;
      ++chunks;
      // 0.05 s are 50 tokens here. The first chunks are a guess.
      if (chunks > 4) {
        EXPECT_LT(chunk->tokens, 50);
      }
      if (chunks > 4 && chunks < 60) {
        EXPECT_GE(chunk->tokens, 25);
      }
    } else if (call.starts_with("begin ")) {
      between = 0;
    }
  }
  EXPECT_GT(chunks, 60);
}

TEST(SchedulerPrefill, ChunksAreLargeIfNobodyDecodes) {
  Bench bench(small_steps());
  bench.runner->seconds_per_prompt_token = 0.0001;
  bench.submit(make_request("L" + std::string(6000, 'y'), 1));
  bench.run();
  std::vector<int> tokens;
  for (const std::string& call : bench.runner->calls()) {
    if (auto chunk = chunk_of(call)) {
      tokens.push_back(chunk->tokens);
    }
  }
  ASSERT_EQ(tokens.size(), 25u);
  EXPECT_EQ(tokens[0], 64);  // nothing is known yet
  // 0.5 s would be 5000; memory is planned for prefill_step.
  EXPECT_EQ(std::count(tokens.begin(), tokens.end(), 256), 22);
}

TEST(SchedulerPrefill, ASlowDeviceGetsShortChunksAlsoIfNobodyDecodes) {
  Bench bench(small_steps());
  bench.runner->seconds_per_prompt_token = 0.005;
  bench.submit(make_request("L" + std::string(1000, 'y'), 1));
  bench.run();
  int chunks = 0;
  for (const std::string& call : bench.runner->calls()) {
    auto chunk = chunk_of(call);
    if (chunk && ++chunks > 1) {
      EXPECT_LE(chunk->tokens, 125);  // 0.5 s are 100, and a quarter
    }
  }
  EXPECT_GE(chunks, 7);
}

TEST(SchedulerPrefill, AShortPromptDoesNotWaitForALongOne) {
  for (int rounds = 1; rounds < 8; ++rounds) {
    Bench bench(small_steps());
    bench.runner->seconds_per_prompt_token = 0.001;
    bench.submit(make_request("L" + std::string(20000, 'y'), 1));
    bench.run_rounds(rounds);
    size_t before = bench.runner->calls().size();
    bench.submit(make_request("short", 1));
    bench.run();
    EXPECT_EQ(bench.finished_order, (std::vector<uint64_t>{2, 1})) << rounds;
    auto calls = bench.runner->calls();
    auto opened = std::find(calls.begin(), calls.end(), "open s");
    // At most one chunk of the long one comes first.
    EXPECT_LE(opened - calls.begin(), static_cast<long>(before) + 1) << rounds;
  }
}

TEST(SchedulerPrefill, ALongPromptIsNotHeldUpForEverByShortOnes) {
  Bench bench(small_steps());
  bench.runner->seconds_per_prompt_token = 0.001;
  bench.runner->seconds_per_step = 0.05;
  uint64_t long_one =
      bench.submit(make_request("L" + std::string(2000, 'y'), 1));
  int rounds = 0;
  for (; rounds < 2000 && !bench.of(long_one).finish; ++rounds) {
    while (bench.scheduler->size() < 10) {
      bench.submit(make_request("s" + std::string(100, 'z'), 20));
    }
    bench.scheduler->run_once();
  }
  EXPECT_TRUE(bench.of(long_one).finish);
  EXPECT_LT(rounds, 300);
  bench.scheduler->cancel_all();
  bench.run();
}

TEST(SchedulerPrefill, ShortPromptsShareAChunk) {
  Bench bench(small_steps());
  bench.runner->seconds_per_prompt_token = 0.001;
  bench.runner->seconds_per_step = 0.05;
  bench.runner->answer("d", std::string(300, 'x'));
  bench.submit(make_request("d"));
  bench.submit(make_request("warm" + std::string(300, 'y'), 1));
  bench.run_rounds(40);
  size_t before = bench.runner->calls().size();
  for (int i = 0; i < 8; ++i) {
    bench.submit(make_request("01234567", 1));
  }
  bench.run();
  // 30 tokens are a chunk: four prompts of seven at a time.
  auto calls = bench.runner->calls();
  int together = 0;
  int most = 0;
  for (size_t i = before; i < calls.size(); ++i) {
    if (calls[i].starts_with("begin ")) {
      together = 0;
    } else if (chunk_of(calls[i])) {
      most = std::max(most, ++together);
    }
  }
  EXPECT_GE(most, 3);
  EXPECT_LE(most, 6);
}

TEST(SchedulerPrefill, ShortPromptsAreComputedTogetherWhereThatIsCheap) {
  Bench bench(small_steps());
  bench.runner->joins = true;
  bench.runner->seconds_per_prompt_token = 0.001;
  bench.runner->cached[bytes("known" + std::string(50, 'k'))] = 30;
  bench.submit(make_request("warm" + std::string(300, 'y'), 1));
  bench.run();
  std::string alike = "=" + std::string(100, '=');
  std::vector<std::string> prompts{
      "a23456789",
      "b2345",
      "known" + std::string(50, 'k'),
      alike + "1",
      alike + "2",
      "c",
      "d234567",
      "L" + std::string(2000, 'l')};
  std::vector<uint64_t> ids;
  for (const std::string& prompt : prompts) {
    ids.push_back(bench.submit(make_request(prompt, 3000)));
  }
  size_t before = bench.runner->calls().size();
  bench.run();
  for (size_t i = 0; i < prompts.size(); ++i) {
    EXPECT_EQ(bench.of(ids[i]).text, prompts[i]) << prompts[i].front();
  }
  auto calls = bench.runner->calls();
  auto is_first = [](const std::string& call) {
    return call.starts_with("together ") || call.starts_with("prefill ");
  };
  auto first = std::ranges::find_if(
      calls.begin() + static_cast<ptrdiff_t>(before),
      calls.end(),
      is_first);
  ASSERT_NE(first, calls.end());
  // All short ones that are not alike and of which nothing is known.
  EXPECT_TRUE(first->starts_with("together ")) << *first;
  for (char name : {'a', 'b', 'd'}) {
    EXPECT_NE(first->find(name, 9), std::string::npos) << *first;
  }
  EXPECT_EQ(first->find('k', 9), std::string::npos) << *first;
  EXPECT_EQ(std::ranges::count(*first, '='), 0) << *first;
  EXPECT_EQ(first->find('L', 9), std::string::npos) << *first;
}

TEST(SchedulerPrefill, PromptsThatDoNotFitTogetherAreComputedOneByOne) {
  Bench bench(small_steps());
  bench.runner->joins = true;
  int failures = 0;
  bench.runner->fault = [&](const std::string& call, const auto& rows) {
    if (call == "prefill" && rows.size() > 1) {
      ++failures;
      fail(ErrorKind::out_of_memory, "prefill", "no room");
    }
  };
  std::vector<uint64_t> ids;
  for (const char* prompt : {"a2345", "b234567", "c2"}) {
    ids.push_back(bench.submit(make_request(prompt, 20)));
  }
  bench.run();
  EXPECT_EQ(failures, 1);
  EXPECT_EQ(bench.of(ids[0]).text, "a2345");
  EXPECT_EQ(bench.of(ids[1]).text, "b234567");
  EXPECT_EQ(bench.of(ids[2]).text, "c2");
  EXPECT_EQ(bench.runner->open_rows, 0);
}

TEST(SchedulerPrefill, NobodyWaitsTwiceAsLongForATokenBesideManyPrompts) {
  EngineOptions options = small_steps();
  options.max_rows = 32;
  Bench bench(options);
  bench.runner->seconds_per_prompt_token = 0.00035;
  bench.runner->seconds_per_step = 0.02;
  std::map<uint64_t, std::pair<size_t, double>> last;
  std::vector<double> gaps;
  int prompt = 20;
  auto submit = [&] {
    // Of every length, longer than a chunk and shorter.
    prompt = 20 + (prompt * 7 + 5) % 90;
    Request request = make_request(std::string(prompt, 'p'), 64);
    request.ignore_eos = true;
    bench.submit(std::move(request));
  };
  for (int i = 0; i < 32; ++i) {
    submit();
  }
  for (int round = 0; round < 600; ++round) {
    bench.scheduler->run_once();
    while (bench.scheduler->size() < 32) {
      submit();
    }
    for (auto& [key, got] : bench.got) {
      auto& [tokens, at] = last[key.first];
      if (got.tokens.size() > tokens) {
        if (tokens > 0 && round > 50) {
          gaps.push_back(bench.clock.now() - at);
        }
        tokens = got.tokens.size();
        at = bench.clock.now();
      }
    }
  }
  bench.scheduler->cancel_all();
  bench.run();
  ASSERT_GT(gaps.size(), 10000u);
  std::sort(gaps.begin(), gaps.end());
  EXPECT_LT(gaps.back(), 1.85 * gaps[gaps.size() / 2]);
}

TEST(SchedulerPrefill, ManyPromptsGetMoreThanOneShortStepsTime) {
  Bench bench(small_steps());
  bench.runner->seconds_per_prompt_token = 0.0001;
  bench.runner->seconds_per_step = 0.006;
  bench.runner->answer("d", std::string(500, 'x'));
  bench.submit(make_request("d"));
  bench.submit(make_request("warm" + std::string(3000, 'y'), 1));
  bench.run_rounds(60);
  auto longest_hold = [&](int prompts) {
    size_t before = bench.runner->calls().size();
    for (int i = 0; i < prompts; ++i) {
      bench.submit(make_request("p" + std::string(300, 'y'), 1));
    }
    bench.run_rounds(4);
    auto calls = bench.runner->calls();
    int tokens = 0;
    int most = 0;
    for (size_t i = before; i < calls.size(); ++i) {
      if (calls[i].starts_with("begin ")) {
        tokens = 0;
      } else if (auto chunk = chunk_of(calls[i])) {
        most = std::max(most, tokens += chunk->tokens);
      }
    }
    return most;
  };
  int one = longest_hold(1);
  EXPECT_GE(one, 55);
  EXPECT_LE(one, 75);
  bench.run_rounds(20);
  int three = longest_hold(3);
  EXPECT_GE(three, 110);
  EXPECT_LE(three, 150);
  bench.scheduler->cancel_all();
  bench.run();
}

TEST(SchedulerPrefill, TheFirstToBeReadyDoesNotWaitForTheOthersPrompts) {
  Bench bench(small_steps());
  for (const char* prompt : {"abc", "bcd", "cde"}) {
    bench.submit(make_request(prompt, 3));
  }
  bench.run();
  auto calls = bench.runner->calls();
  calls.resize(4);
  EXPECT_EQ(
      calls,
      (std::vector<std::string>{
          "open a",
          "prefill a 2",
          "begin a",
          "choose a"}));
}

TEST(SchedulerPrefill, WhatIsKnownIsNotComputedAgain) {
  Bench bench(small_steps());
  bench.runner->cached[bytes("0123456789")] = 9;  // all but the last
  uint64_t id = bench.submit(make_request("0123456789", 2));
  bench.run();
  EXPECT_EQ(bench.of(id).finish->usage.cached_tokens, 9);
  for (const std::string& call : bench.runner->calls()) {
    EXPECT_FALSE(chunk_of(call)) << call;
  }
  // One who claims to know the last token too is not believed.
  bench.runner->cached[bytes("01")] = 2;
  id = bench.submit(make_request("01", 2));
  bench.run();
  EXPECT_EQ(bench.of(id).reason(), FinishReason::error);
}

TEST(SchedulerPrefill, StepsOfSeveralModelsAlternate) {
  Bench bench;
  auto second = std::make_shared<FakeRunner>("n", &bench.clock);
  bench.source.runners["n"] = second;
  Request request = make_request("a", 4);
  request.ignore_eos = true;
  uint64_t first_id = bench.submit(request);
  request.model = "n";
  request.prompt = bytes("b");
  uint64_t second_id = bench.submit(request);
  bench.run();
  auto order = bench.token_order;
  EXPECT_EQ(order.size(), 8u);
  // The first one is a step ahead: its prompt came first.
  for (size_t i = 0; i + 2 < order.size(); ++i) {
    EXPECT_FALSE(order[i] == order[i + 1] && order[i] == order[i + 2]);
  }
  EXPECT_EQ(bench.of(first_id).tokens.size(), 4u);
  EXPECT_EQ(bench.of(second_id).tokens.size(), 4u);
}

TEST(SchedulerPrefill, PrioritiesComeFirst) {
  EngineOptions options;
  options.max_rows = 1;
  Bench bench(options);
  std::vector<uint64_t> ids;
  for (int priority : {0, 0, 2, 1}) {
    Request request = make_request("p", 2);
    request.priority = priority;
    ids.push_back(bench.submit(std::move(request)));
  }
  bench.run();
  EXPECT_EQ(
      bench.finished_order,
      (std::vector<uint64_t>{ids[2], ids[3], ids[0], ids[1]}));
}

TEST(SchedulerPrefill, TenantsGetEqualShares) {
  EngineOptions options;
  options.max_rows = 2;
  Bench bench(options);
  std::map<uint64_t, std::string> tenant_of;
  auto submit = [&](const std::string& tenant, int count) {
    for (int i = 0; i < count; ++i) {
      Request request = make_request("ppppp", 5);
      request.tenant = tenant;
      tenant_of[bench.submit(std::move(request))] = tenant;
    }
  };
  submit("many", 40);
  bench.run_rounds(4);
  submit("few", 6);
  bench.run();
  // Those of "few" are through after about as many of "many".
  int others = 0;
  int few = 0;
  for (uint64_t id : bench.finished_order) {
    if (tenant_of[id] == "few" && ++few == 6) {
      break;
    }
    others += tenant_of[id] == "many" ? 1 : 0;
  }
  EXPECT_LE(others, 12);
}

}  // namespace
}  // namespace mlxx::engine
