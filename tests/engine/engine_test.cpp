#include "mlxx/engine/engine.h"

#include <atomic>
#include <condition_variable>
#include <random>
#include <thread>

#include <gtest/gtest.h>

#include "tests/engine/scheduler_bench.h"

// The engine with its thread: what any thread may do at any time.
namespace mlxx::engine {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Collects the events of one request.
class Inbox {
 public:
  Sink sink() {
    return [this](Event event) {
      std::lock_guard lock(mutex_);
      Got& got = got_[event.choice];
      take(got, std::move(event));
      changed_.notify_all();
    };
  }
  // When all choices are finished.
  std::map<int, Got> wait(int choices = 1) {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, seconds(60), [&] {
      int finished = 0;
      for (const auto& [choice, got] : got_) {
        finished += got.finish ? 1 : 0;
      }
      return finished == choices;
    }));
    return got_;
  }
  void wait_for_tokens(size_t count) {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, seconds(60), [&] {
      return got_[0].tokens.size() >= count;
    }));
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<int, Got> got_;
};

// Holds the engine's thread in a call of its runner until it is opened.
class Gate {
 public:
  void pass() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return open_; });
  }
  void open() {
    std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
};

struct EngineMaker {
  std::function<void(FakeRunner&)> runner = [](FakeRunner&) {};
  EngineOptions options;
  std::shared_ptr<FakeRunner> last;  // outlives the engine, for its calls

  std::unique_ptr<Engine> engine() {
    return std::make_unique<Engine>(
        options,
        [this]() -> std::unique_ptr<ModelSource> {
          auto source = std::make_unique<FakeSource>();
          auto made = std::make_shared<FakeRunner>("m");
          made->keeps_calls = false;
          runner(*made);
          source->runners["m"] = made;
          last = made;
          return source;
        });
  }
};

Request endless(const std::string& prompt) {
  Request request = make_request(prompt, 90000);
  request.ignore_eos = true;
  return request;
}

TEST(Engine, AnswersFromItsThread) {
  EngineMaker maker;
  auto engine = maker.engine();
  Inbox inbox;
  EXPECT_GT(engine->submit(make_request("hello"), inbox.sink()), 0u);
  EXPECT_EQ(inbox.wait()[0].text, "hello");
  engine->drain(seconds(10));
  EngineStats stats = engine->stats();
  EXPECT_EQ(stats.finished, 1u);
  EXPECT_EQ(stats.waiting + stats.prefilling + stats.decoding, 0);
  EXPECT_EQ(stats.generated_tokens, 6u);
  EXPECT_GE(stats.steps, 6u);
}

TEST(Engine, WhatMakingTheSourceThrowsComesOut) {
  EXPECT_THROW(
      Engine(
          EngineOptions{},
          []() -> std::unique_ptr<ModelSource> {
            fail(ErrorKind::bad_file, "model", "damaged");
          }),
      Error);
  EXPECT_THROW(
      Engine(
          EngineOptions{},
          []() -> std::unique_ptr<ModelSource> { return nullptr; }),
      Error);
  EngineOptions options;
  options.max_rows = 0;
  EXPECT_THROW(
      Engine(options, [] { return std::make_unique<FakeSource>(); }),
      Error);
}

TEST(Engine, RefusesOptionsOutOfRangeAtOnce) {
  EngineMaker maker;
  auto engine = maker.engine();
  auto refused = [&](auto change) {
    Request request = make_request("a");
    change(request);
    try {
      engine->submit(std::move(request), [](const Event&) {});
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::invalid_request);
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_TRUE(
      refused([](Request& r) { r.prompt.clear(); }).starts_with("[prompt]"));
  EXPECT_TRUE(refused([](Request& r) { r.n = 0; }).starts_with("[n]"));
  EXPECT_TRUE(refused([](Request& r) { r.n = 33; }).starts_with("[n]"));
  EXPECT_TRUE(refused([](Request& r) {
                r.max_tokens = -1;
              }).starts_with("[max_tokens]"));
  EXPECT_TRUE(refused([](Request& r) { r.stop = {""}; }).starts_with("[stop]"));
  EXPECT_TRUE(refused([](Request& r) {
                r.top_logprobs = -1;
              }).starts_with("[top_logprobs]"));
  EXPECT_TRUE(refused([](Request& r) {
                r.sampling.top_p = NAN;
              }).starts_with("[top_p]"));
  EXPECT_TRUE(refused([](Request& r) {
                r.reasoning = Reasoning{true, "", "x", -1};
              }).starts_with("[reasoning_budget]"));
}

TEST(Engine, IsBusyWhenTheQueueIsFull) {
  EngineMaker maker;
  Gate gate;
  maker.options.max_rows = 1;
  maker.options.max_queue = 3;
  maker.runner = [&](FakeRunner& runner) {
    runner.fault = [&](const std::string& call, const auto&) {
      if (call == "begin") {
        gate.pass();
      }
    };
  };
  auto engine = maker.engine();
  std::vector<std::unique_ptr<Inbox>> inboxes;
  auto submit = [&] {
    inboxes.push_back(std::make_unique<Inbox>());
    engine->submit(make_request("abc"), inboxes.back()->sink());
  };
  submit();
  int taken = 0;
  try {
    for (; taken < 10; ++taken) {
      submit();
    }
    ADD_FAILURE() << "the queue has no end";
  } catch (const Busy& busy) {
    EXPECT_TRUE(busy.queue_full());
    EXPECT_GE(busy.retry_after_seconds(), 1);
    EXPECT_LE(busy.retry_after_seconds(), 60);
    inboxes.pop_back();
  }
  EXPECT_EQ(taken, 3);
  gate.open();
  for (auto& inbox : inboxes) {
    EXPECT_EQ(inbox->wait()[0].text, "abc");
  }
  EXPECT_EQ(engine->stats().refused, 1u);
  // There is room again.
  Inbox last;
  engine->submit(make_request("last"), last.sink());
  EXPECT_EQ(last.wait()[0].text, "last");
}

TEST(Engine, WithoutAQueueOnlyTheRowsAreTaken) {
  EngineMaker maker;
  maker.options.max_rows = 2;
  maker.options.max_queue = 0;
  Inbox first, second, third;  // the engine cancels the first one at its end
  auto engine = maker.engine();
  engine->submit(endless("a"), first.sink());
  RequestId id = engine->submit(endless("b"), second.sink());
  EXPECT_THROW(engine->submit(endless("c"), third.sink()), Busy);
  second.wait_for_tokens(1);
  EXPECT_THROW(engine->submit(endless("c"), third.sink()), Busy);
  engine->cancel(id);
  second.wait();
  for (int i = 0; engine->stats().decoding == 2 && i < 10000; ++i) {
    std::this_thread::sleep_for(milliseconds(1));
  }
  engine->submit(make_request("third", 2), third.sink());
  EXPECT_EQ(third.wait()[0].text, "th");
}

TEST(Engine, CancelsWhatRunsAndWhatWaits) {
  EngineMaker maker;
  maker.options.max_rows = 1;
  auto engine = maker.engine();
  Inbox running, waiting;
  RequestId first = engine->submit(endless("r"), running.sink());
  RequestId second = engine->submit(endless("w"), waiting.sink());
  running.wait_for_tokens(3);
  engine->cancel(second);
  EXPECT_EQ(waiting.wait()[0].reason(), FinishReason::cancelled);
  engine->cancel(first);
  EXPECT_EQ(running.wait()[0].reason(), FinishReason::cancelled);
  engine->cancel(12345);
  engine->drain(seconds(10));
  EXPECT_EQ(engine->stats().cancelled, 2u);
}

TEST(Engine, DrainFinishesWhatRunsAndTakesNoMore) {
  EngineMaker maker;
  auto engine = maker.engine();
  Inbox inbox;
  engine->submit(make_request(std::string(500, 'x')), inbox.sink());
  engine->drain(seconds(60));
  EXPECT_EQ(inbox.wait()[0].reason(), FinishReason::stop);
  try {
    engine->submit(make_request("late"), inbox.sink());
    ADD_FAILURE();
  } catch (const Busy& busy) {
    EXPECT_FALSE(busy.queue_full());
  }
  engine->drain(seconds(0));
}

TEST(Engine, DrainCancelsWhenItsPatienceEnds) {
  EngineMaker maker;
  maker.options.max_rows = 1;
  auto engine = maker.engine();
  Inbox running, waiting;
  engine->submit(endless("r"), running.sink());
  engine->submit(endless("w"), waiting.sink());
  running.wait_for_tokens(1);
  engine->drain(milliseconds(5));
  EXPECT_EQ(running.wait()[0].reason(), FinishReason::cancelled);
  EXPECT_EQ(waiting.wait()[0].reason(), FinishReason::cancelled);
}

TEST(Engine, DestructionCancels) {
  EngineMaker maker;
  Inbox running, waiting;
  {
    maker.options.max_rows = 1;
    auto engine = maker.engine();
    engine->submit(endless("r"), running.sink());
    engine->submit(endless("w"), waiting.sink());
    running.wait_for_tokens(1);
  }
  EXPECT_EQ(running.wait()[0].reason(), FinishReason::cancelled);
  EXPECT_EQ(waiting.wait()[0].reason(), FinishReason::cancelled);
  EXPECT_EQ(maker.last->open_rows, 0);
}

TEST(Engine, RunsWorkBetweenSteps) {
  EngineMaker maker;
  auto engine = maker.engine();
  Inbox inbox;
  RequestId id = engine->submit(endless("r"), inbox.sink());
  inbox.wait_for_tokens(1);
  std::vector<std::thread::id> threads;
  std::promise<void> done;
  for (int i = 0; i < 5; ++i) {
    engine->post([&, i](ModelSource& source) {
      EXPECT_EQ(source.runner("m")->vocab_size(), kVocabulary);
      threads.push_back(std::this_thread::get_id());
      if (i == 2) {
        throw std::runtime_error("must not, but the engine lives on");
      }
      if (i == 4) {
        done.set_value();
      }
    });
  }
  EXPECT_EQ(done.get_future().wait_for(seconds(60)), std::future_status::ready);
  EXPECT_EQ(threads, std::vector<std::thread::id>(5, threads[0]));
  EXPECT_NE(threads[0], std::this_thread::get_id());
  engine->cancel(id);
  inbox.wait();
}

TEST(Engine, AGrammarWakesItUp) {
  EngineMaker maker;
  auto engine = maker.engine();
  Inbox inbox;
  Request request = make_request("abc");
  request.constraint = Constraint{text::GrammarKind::regex, "a[x-z]c"};
  engine->submit(std::move(request), inbox.sink());
  EXPECT_EQ(inbox.wait()[0].text, "axc");
}

// Many clients that come and go: each gets its answer or is cancelled, and
// nothing is left behind.
TEST(Engine, StandsManyThreadsThatSubmitAndCancel) {
  EngineMaker maker;
  maker.options.max_rows = 8;
  maker.options.max_queue = 64;
  maker.options.prefill_step = 16;
  auto engine = maker.engine();
  constexpr int kThreads = 8;
  constexpr int kRounds = 60;
  std::atomic<int> answered = 0, cancelled = 0, busy = 0;
  std::vector<std::thread> clients;
  for (int t = 0; t < kThreads; ++t) {
    clients.emplace_back([&, t] {
      std::mt19937 random(static_cast<unsigned>(t));
      for (int round = 0; round < kRounds; ++round) {
        std::string prompt = fmt::format("{}/{}", t, round);
        prompt += std::string(random() % 100, static_cast<char>('a' + t));
        Request request = make_request(prompt);
        request.n = 1 + static_cast<int>(random() % 3);
        request.tenant = std::to_string(t % 3);
        request.priority = static_cast<int>(random() % 3);
        bool constrained = random() % 8 == 0;
        if (constrained) {
          request.constraint = Constraint{text::GrammarKind::regex, "[a-z]{9}"};
        }
        int choices = request.n;
        Inbox inbox;
        RequestId id = 0;
        try {
          id = engine->submit(std::move(request), inbox.sink());
        } catch (const Busy&) {
          ++busy;
          std::this_thread::yield();
          continue;
        }
        bool cancels = random() % 3 == 0;
        if (cancels) {
          for (unsigned i = random() % 50; i > 0; --i) {
            std::this_thread::yield();
          }
          engine->cancel(id);
        }
        if (random() % 10 == 0) {
          EXPECT_TRUE(engine->stats().healthy);
        }
        for (const auto& [choice, got] : inbox.wait(choices)) {
          if (got.reason() == FinishReason::cancelled) {
            EXPECT_TRUE(cancels);
            ++cancelled;
          } else {
            EXPECT_EQ(got.reason(), FinishReason::stop);
            EXPECT_EQ(got.text.size(), constrained ? 9 : prompt.size());
            EXPECT_TRUE(constrained || got.text == prompt);
            ++answered;
          }
        }
      }
    });
  }
  for (std::thread& client : clients) {
    client.join();
  }
  engine->drain(seconds(60));
  EXPECT_GT(answered, kThreads * kRounds / 2);
  EXPECT_EQ(maker.last->open_rows, 0);
  EngineStats stats = engine->stats();
  EXPECT_EQ(
      stats.finished + stats.cancelled,
      static_cast<uint64_t>(kThreads * kRounds - busy));
  EXPECT_EQ(stats.failed, 0u);
  EXPECT_EQ(stats.refused, static_cast<uint64_t>(busy));
}

}  // namespace
}  // namespace mlxx::engine
