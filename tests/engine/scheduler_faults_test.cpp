#include <gtest/gtest.h>

#include "tests/engine/scheduler_bench.h"

// Cancellations and failures: who is affected, and that all else goes on.
namespace mlxx::engine {
namespace {

int count_of(const Bench& bench, const std::string& call) {
  auto calls = bench.runner->calls();
  return static_cast<int>(std::count(calls.begin(), calls.end(), call));
}

TEST(SchedulerFaults, CancelsAtEveryStage) {
  // At each round of a request's life, from the queue on.
  for (int rounds = 0; rounds < 40; ++rounds) {
    EngineOptions options;
    options.prefill_step = 16;
    Bench bench(options);
    Request request = make_request("c" + std::string(100, 'p'), 20);
    request.n = 2;
    request.ignore_eos = true;
    if (rounds % 2 == 1) {
      request.constraint = Constraint{text::GrammarKind::regex, "[a-z]*"};
    }
    uint64_t other = bench.submit(make_request("other", 100));
    uint64_t id = bench.submit(std::move(request));
    bench.run_rounds(rounds);
    bool was_done = bench.of(id).finish.has_value();
    auto begun = [&] {
      auto calls = bench.runner->calls();
      return std::count_if(calls.begin(), calls.end(), [](const auto& call) {
        return call.starts_with("begin ") &&
            call.find('c') != std::string::npos;
      });
    };
    bench.scheduler->cancel(id);
    EXPECT_TRUE(bench.of(id, 0).finish) << rounds;
    EXPECT_TRUE(bench.of(id, 1).finish) << rounds;
    auto before = begun();
    bench.run();
    EXPECT_EQ(begun(), before) << rounds;  // no step is begun for it any more
    if (!was_done) {
      EXPECT_EQ(bench.of(id, 0).reason(), FinishReason::cancelled) << rounds;
      EXPECT_EQ(bench.scheduler->stats().cancelled, 1u);
    }
    EXPECT_EQ(bench.of(other).text, "other") << rounds;
    EXPECT_EQ(bench.runner->open_rows, 0) << rounds;
    EXPECT_EQ(bench.source.used, 0) << rounds;
  }
}

TEST(SchedulerFaults, AnUnknownIdIsNotCancelled) {
  Bench bench;
  uint64_t id = bench.submit(make_request("abc"));
  bench.scheduler->cancel(99);
  bench.run();
  bench.scheduler->cancel(id);  // it is done
  EXPECT_EQ(bench.of(id).reason(), FinishReason::stop);
}

TEST(SchedulerFaults, ACancelledPromptKeepsWhatIsComputed) {
  EngineOptions options;
  options.prefill_step = 16;
  Bench bench(options);
  std::string prompt = "c" + std::string(100, 'p');
  uint64_t id = bench.submit(make_request(prompt));
  bench.run_rounds(1);
  bench.scheduler->cancel(id);
  bench.run();
  ASSERT_EQ(bench.runner->closed().size(), 1u);
  EXPECT_EQ(bench.runner->closed()[0], bytes(prompt.substr(0, 16)));
}

void throw_once(
    Bench& bench,
    const std::string& where,
    const std::string& row,
    int skip = 0) {
  auto left = std::make_shared<int>(skip);
  bench.runner->fault = [=](const std::string& call, const auto& rows) {
    bool concerned = row.empty();
    for (const FakeRow* fake : rows) {
      concerned = concerned || static_cast<char>(fake->tokens[0]) == row[0];
    }
    if (call == where && concerned && (*left)-- == 0) {
      throw std::runtime_error("the device is gone");
    }
  };
}

TEST(SchedulerFaults, AnErrorFailsTheRowsOfItsStepOnly) {
  for (const char* where :
       {"open", "fork", "prefill", "begin", "choose", "read"}) {
    bool any = where[0] == 'o' || where[0] == 'f';  // no row is named
    for (int skip = 0; skip < (any ? 1 : 3); ++skip) {
      Bench bench;
      uint64_t first = bench.submit(make_request("first"));
      bench.run();
      Request request = make_request("bad one");
      request.n = 2;
      throw_once(bench, where, any ? "" : "b", skip);
      uint64_t bad = bench.submit(std::move(request));
      bench.run();
      uint64_t after = bench.submit(make_request("after"));
      bench.run();
      EXPECT_EQ(bench.of(first).text, "first");
      EXPECT_EQ(bench.of(after).text, "after") << where;
      bool once = where[0] == 'p';  // one chunk only
      if (any || !once || skip == 0) {
        EXPECT_EQ(bench.of(bad, 0).reason(), FinishReason::error) << where;
        EXPECT_EQ(bench.of(bad, 1).reason(), FinishReason::error) << where;
        EXPECT_TRUE(bench.of(bad).error().ends_with("the device is gone"));
        EXPECT_EQ(bench.scheduler->stats().failed, 1u);
      }
      EXPECT_TRUE(bench.scheduler->stats().healthy);
      EXPECT_EQ(bench.runner->open_rows, 0) << where;
      EXPECT_EQ(bench.source.used, 0);
    }
  }
}

TEST(SchedulerFaults, TokensThatWereReadBeforeTheErrorAreDelivered) {
  for (const char* where : {"begin", "choose"}) {
    Bench bench;
    throw_once(bench, where, "b", /*skip=*/3);
    uint64_t id = bench.submit(make_request("b1234567"));
    bench.run();
    EXPECT_EQ(bench.of(id).text, "b12") << where;
    EXPECT_EQ(bench.of(id).reason(), FinishReason::error);
  }
}

TEST(SchedulerFaults, AnErrorOfOneModelDoesNotReachAnother) {
  Bench bench;
  auto second = std::make_shared<FakeRunner>("n", &bench.clock);
  bench.source.runners["n"] = second;
  throw_once(bench, "read", "", 2);
  uint64_t bad = bench.submit(make_request("bad one"));
  Request request = make_request("good one");
  request.model = "n";
  uint64_t good = bench.submit(std::move(request));
  bench.run();
  EXPECT_EQ(bench.of(bad).reason(), FinishReason::error);
  EXPECT_EQ(bench.of(good).text, "good one");
}

TEST(SchedulerFaults, NotFiniteLogitsFailTheirRow) {
  Bench bench;
  bench.runner->not_finite.insert(bytes("bad"));
  uint64_t bad = bench.submit(make_request("bad"));
  uint64_t good = bench.submit(make_request("good"));
  bench.run();
  EXPECT_EQ(bench.of(bad).reason(), FinishReason::error);
  EXPECT_TRUE(bench.of(bad).error().find("not finite") != std::string::npos);
  EXPECT_EQ(bench.of(good).text, "good");
  // Its state is not kept, the other's is.
  auto closed = bench.runner->closed();
  EXPECT_EQ(
      std::count(closed.begin(), closed.end(), std::vector<int32_t>{}),
      1);
  EXPECT_TRUE(bench.scheduler->stats().healthy);
}

TEST(SchedulerFaults, ARunnerThatKeepsFailingIsReportedUntilItWorks) {
  Bench bench;
  bool broken = true;
  bench.runner->fault = [&](const std::string& call, const auto&) {
    if (broken && call == "read") {
      throw std::runtime_error("the device is gone");
    }
  };
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(bench.scheduler->stats().healthy);
    bench.submit(make_request("abc"));
    bench.run();
  }
  EngineStats stats = bench.scheduler->stats();
  EXPECT_FALSE(stats.healthy);
  EXPECT_EQ(stats.problem, "[decode] the device is gone");
  EXPECT_EQ(stats.failed, 3u);
  broken = false;
  uint64_t id = bench.submit(make_request("abc"));
  bench.run();
  EXPECT_EQ(bench.of(id).text, "abc");
  EXPECT_TRUE(bench.scheduler->stats().healthy);
}

TEST(SchedulerFaults, WhatRequestsAskForDoesNotMakeTheEngineUnhealthy) {
  Bench bench;
  bench.runner->fault = [&](const std::string& call, const auto&) {
    if (call == "open") {
      fail(ErrorKind::not_found, "adapter", "no such adapter is mounted");
    }
    if (call == "prefill") {
      fail(ErrorKind::out_of_memory, "prefill", "no room");
    }
  };
  for (int i = 0; i < 10; ++i) {
    bench.submit(make_request("abc"));
    bench.run();
  }
  EXPECT_EQ(bench.scheduler->stats().failed, 10u);
  EXPECT_TRUE(bench.scheduler->stats().healthy);
}

TEST(SchedulerFaults, APromptThatDoesNotFitIsTriedOnceWithSmallerChunks) {
  EngineOptions options;
  options.prefill_step = 128;
  Bench bench(options);
  int failures = 1;
  bench.runner->fault = [&](const std::string& call, const auto& rows) {
    if (call == "prefill" && rows[0]->computed == 64 && failures-- > 0) {
      fail(ErrorKind::out_of_memory, "prefill", "no room");
    }
  };
  std::string prompt = "c" + std::string(300, 'p');
  uint64_t id = bench.submit(make_request(prompt, 400));
  bench.run();
  EXPECT_EQ(bench.of(id).text, prompt);
  EXPECT_EQ(count_of(bench, "open c"), 2);
  EXPECT_EQ(count_of(bench, "prefill c 64"), 2);
  EXPECT_EQ(count_of(bench, "prefill c 32"), 9);
  EXPECT_EQ(bench.scheduler->stats().prompt_tokens, 301u);
  // What was half computed is forgotten.
  EXPECT_EQ(bench.runner->closed()[0], std::vector<int32_t>{});
  failures = 2;
  id = bench.submit(make_request(prompt, 400));
  bench.run();
  EXPECT_EQ(bench.of(id).reason(), FinishReason::error);
  EXPECT_EQ(bench.runner->open_rows, 0);
}

TEST(SchedulerFaults, ASinkThatThrowsEndsItsRequest) {
  Bench bench;
  Request request = make_request("abc", 100000);
  request.ignore_eos = true;
  int events = 0;
  bench.scheduler->add(
      50,
      std::move(request),
      [&](const Event&) {
        ++events;
        throw std::runtime_error("no");
      },
      0);
  uint64_t other = bench.submit(make_request("other"));
  bench.run();
  EXPECT_EQ(events, 1);
  EXPECT_EQ(bench.of(other).text, "other");
  EXPECT_EQ(bench.runner->open_rows, 0);
  EXPECT_LT(count_of(bench, "begin a"), 5);
}

TEST(SchedulerFaults, TicksWhenStepsAreDoneAndOnceASecondOtherwise) {
  Bench bench;
  bench.runner->seconds_per_step = 0.01;
  bench.submit(make_request("abc"));
  bench.run();
  EXPECT_EQ(bench.source.ticks, 6);
  int before = bench.source.ticks;
  bench.run_rounds(5);
  EXPECT_EQ(bench.source.ticks, before);
  bench.clock.pass(1.5);
  bench.run_rounds(5);
  EXPECT_EQ(bench.source.ticks, before + 1);
}

TEST(SchedulerFaults, DestructionCancelsAndCloses) {
  Bench bench;
  bench.submit(make_request("aaaaaaaaaaa"));
  bench.submit(make_request("bbbbbbbbbbb"));
  bench.run_rounds(3);
  bench.scheduler.reset();
  EXPECT_EQ(bench.of(1).reason(), FinishReason::cancelled);
  EXPECT_EQ(bench.of(2).reason(), FinishReason::cancelled);
  EXPECT_EQ(bench.runner->open_rows, 0);
}

}  // namespace
}  // namespace mlxx::engine
