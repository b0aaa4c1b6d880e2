#include "mlxx/server/remote_engine.h"

#include <cmath>
#include <future>
#include <thread>

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <nlohmann/json.hpp>

#include "mlxx/server/engine_host.h"
#include "mlxx/server/engine_messages.h"
#include "tests/server/fake_port.h"
#include "tests/server/raw_client.h"
#include "tests/server/served_fake.h"

namespace mlxx::server {

namespace {

using std::chrono::milliseconds;

bool eventually(const std::function<bool()>& condition) {
  for (int i = 0; i < 500 && !condition(); ++i) {
    std::this_thread::sleep_for(milliseconds(10));
  }
  return condition();
}

// Processes that are threads. kill() cuts the newest one off as a crash does.
class Processes {
 public:
  explicit Processes(std::function<std::shared_ptr<EnginePort>()> make_engine)
      : make_engine_(std::move(make_engine)) {}

  RemoteEngineOptions options() {
    RemoteEngineOptions options;
    options.first_wait = milliseconds(50);
    options.start = [this] { return start(); };
    return options;
  }
  void kill() {
    std::lock_guard lock(mutex_);
    shutdown(inner_, SHUT_RDWR);
  }
  std::atomic<int> started{0};

 private:
  EngineProcess start() {
    ++started;
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) {
      throw std::runtime_error("no socket pair");
    }
    {
      std::lock_guard lock(mutex_);
      inner_ = ends[1];
    }
    auto done = std::make_shared<std::future<void>>(
        std::async(std::launch::async, [this, inner = ends[1]] {
          EngineChannel channel(inner);
          if (auto engine = make_engine_()) {
            host_engine(channel, *engine);
          }
        }));
    return {ends[0], [done] {
              done->wait();
              return std::string("was killed by signal 9");
            }};
  }

  std::function<std::shared_ptr<EnginePort>()> make_engine_;
  std::mutex mutex_;
  int inner_ = -1;
};

struct Heard {
  std::mutex mutex;
  std::vector<engine::Event> events;
  engine::Sink sink() {
    return [this](engine::Event event) {
      std::lock_guard lock(mutex);
      events.push_back(std::move(event));
    };
  }
  size_t count() {
    std::lock_guard lock(mutex);
    return events.size();
  }
};

}  // namespace

TEST(EngineMessages, KeepEveryField) {
  engine::Request request;
  request.id = "a";
  request.model = "m";
  request.adapter = "x";
  request.prompt = {1, 2, 3};
  request.sampling.temperature = 0.7f;
  request.sampling.logit_bias = {{5, -1.5f}};
  request.sampling.seed = int64_t{1} << 60;
  request.sampling.xtc_special_tokens = {{7}};
  request.max_tokens = 9;
  request.n = 2;
  request.stop = {"end"};
  request.visible_tokens = {"<t>"};
  request.top_logprobs = 0;
  request.constraint = engine::Constraint{text::GrammarKind::regex, "a+"};
  request.reasoning = engine::Reasoning{true, "<", ">", 5};
  request.priority = -3;
  request.tenant = "\xff\x01";
  auto back = from_message<engine::Request>(to_message(request));
  EXPECT_EQ(back.prompt, request.prompt);
  EXPECT_EQ(back.sampling, request.sampling);
  EXPECT_EQ(back.stop, request.stop);
  EXPECT_EQ(back.top_logprobs, request.top_logprobs);
  EXPECT_EQ(back.constraint->grammar, "a+");
  EXPECT_EQ(back.reasoning->budget, 5);
  EXPECT_EQ(back.tenant, request.tenant);
  EXPECT_EQ(to_message(back), to_message(request));

  engine::Event event;
  event.choice = 1;
  event.text = "é";
  event.tokens.push_back({4, -0.25f, {{4, -0.25f}, {5, -2.0f}}});
  event.prompt.push_back({1, NAN, {}});
  event.finish.emplace();
  event.finish->usage.cached_tokens = 3;
  event.finish->error = std::make_shared<engine::Busy>("[queue] full", 4, true);
  std::vector<uint8_t> bytes;
  Json::to_cbor(to_message(event), bytes);
  auto heard = from_message<engine::Event>(Json::from_cbor(bytes));
  EXPECT_EQ(heard.tokens[0].top[1].logprob, -2.0f);
  EXPECT_TRUE(std::isnan(heard.prompt[0].logprob));
  EXPECT_EQ(heard.finish->usage.cached_tokens, 3);
  auto* busy = dynamic_cast<const engine::Busy*>(heard.finish->error.get());
  ASSERT_NE(busy, nullptr);
  EXPECT_TRUE(busy->queue_full());
  EXPECT_STREQ(busy->what(), "[queue] full");

  auto refusal = error_from_message(error_to_message(
      api::RequestError(413, "[x] large", "input", "too_large")));
  auto* known = dynamic_cast<const api::RequestError*>(refusal.get());
  ASSERT_NE(known, nullptr);
  EXPECT_EQ(known->status(), 413);
  EXPECT_EQ(known->code(), "too_large");
}

TEST(RemoteEngine, CarriesRequestsEventsAndCancellations) {
  auto port = std::make_shared<FakePort>();
  port->current.ready = true;
  Heard heard;
  Processes processes([port] { return port; });
  auto remote = make_remote_engine(processes.options());
  ASSERT_TRUE(eventually([&] { return remote->state().ready; }));
  engine::Request request;
  request.prompt = {1, 2};
  auto id = remote->submit(request, heard.sink());
  ASSERT_TRUE(eventually([&] { return port->submitted() == 1; }));
  port->say_text("hello");
  ASSERT_TRUE(eventually([&] { return heard.count() == 1; }));
  EXPECT_EQ(heard.events[0].text, "hello");
  remote->cancel(id);
  ASSERT_TRUE(eventually([&] { return port->was_cancelled(1); }));
  port->finish(engine::FinishReason::cancelled);
  ASSERT_TRUE(eventually([&] { return heard.count() == 2; }));

  port->refuse = true;
  remote->submit(request, heard.sink());
  ASSERT_TRUE(eventually([&] { return heard.count() == 3; }));
  auto* busy =
      dynamic_cast<const engine::Busy*>(heard.events[2].finish->error.get());
  ASSERT_NE(busy, nullptr);
  EXPECT_EQ(busy->retry_after_seconds(), 7);

  std::promise<bool> embedded;
  remote->embed({}, [&](engine::EmbedAnswer, std::exception_ptr problem) {
    embedded.set_value(problem == nullptr);
  });
  EXPECT_TRUE(embedded.get_future().get());
  std::promise<std::string> mounted;
  AdapterCommand command;
  command.name = "one";
  remote->adapters(
      command,
      [&](const AdapterAnswer& answer, std::exception_ptr) {
        mounted.set_value(answer.entries.at(0).name);
      });
  auto name = mounted.get_future();
  ASSERT_EQ(name.wait_for(milliseconds(5000)), std::future_status::ready);
  EXPECT_EQ(name.get(), "one");
  remote->drain(milliseconds(10));
}

TEST(RemoteEngine, EmbeddingsThatNobodyWaitsForAreCancelled) {
  auto port = std::make_shared<FakePort>();
  port->keep_embeds = true;
  port->current.ready = true;
  Processes processes([port] { return port; });
  auto remote = make_remote_engine(processes.options());
  ASSERT_TRUE(eventually([&] { return remote->state().ready; }));
  std::atomic<bool> wanted{true};
  engine::EmbedRequest request;
  request.is_wanted = [&] { return wanted.load(); };
  remote->embed(request, [](engine::EmbedAnswer, std::exception_ptr) {});
  ASSERT_TRUE(eventually([&] { return port->waiting_embeds() == 1; }));
  EXPECT_FALSE(port->has_unwanted_embed());
  wanted = false;
  EXPECT_TRUE(eventually([&] { return port->has_unwanted_embed(); }));
}

TEST(RemoteEngine, TellsWhatIsLoaded) {
  auto port = std::make_shared<FakePort>();
  port->current.ready = true;
  port->current_stats.source.loaded_models = {"a", "b"};
  std::mutex mutex;
  std::vector<std::string> loaded;
  auto is_loaded = [&](const std::vector<std::string>& models) {
    return eventually([&] {
      std::lock_guard lock(mutex);
      return loaded == models;
    });
  };
  Processes processes([port] { return port; });
  auto options = processes.options();
  options.first_wait = milliseconds(2000);
  options.on_loaded = [&](const std::vector<std::string>& models) {
    std::lock_guard lock(mutex);
    loaded = models;
  };
  auto remote = make_remote_engine(options);
  EXPECT_TRUE(is_loaded({"a", "b"}));
  processes.kill();
  EXPECT_TRUE(is_loaded({}));
  EXPECT_TRUE(is_loaded({"a", "b"}));
}

TEST(LocalEngine, AListedModelThatCannotBeLoadedIsSaidAtTheStart) {
  struct Source : engine::FakeSource {
    void check(const std::string& model) override {
      if (model == "broken") {
        fail(ErrorKind::bad_file, "config.json", "is empty");
      }
    }
  };
  auto state_of = [](std::vector<std::string> models) {
    auto engine = make_local_engine(
        {},
        [] {
          auto source = std::make_unique<Source>();
          source->runners["first"] =
              std::make_shared<engine::FakeRunner>("first");
          return source;
        },
        models);
    EXPECT_TRUE(eventually(
        [&] { return engine->state().ready || engine->state().is_final; }));
    return engine->state();
  };
  EXPECT_TRUE(state_of({"first", "second"}).ready);
  auto state = state_of({"first", "broken", "second"});
  EXPECT_TRUE(state.is_final);
  EXPECT_EQ(state.problem, "[broken] [config.json] is empty");
}

TEST(RemoteEngine, AClientThatLeavesCancelsItsEmbedding) {
  auto port = std::make_shared<FakePort>();
  port->keep_embeds = true;
  ServedFake fake;
  fake.services->engine = port;
  fake.start();
  {
    RawClient client(fake.server->port());
    std::string body = R"({"input":["a","b"]})";
    client.send(fmt::format(
        "POST /v1/embeddings HTTP/1.1\r\nHost: localhost\r\n"
        "Content-Length: {}\r\n\r\n{}",
        body.size(),
        body));
    ASSERT_TRUE(eventually([&] { return port->waiting_embeds() == 1; }));
    EXPECT_FALSE(port->has_unwanted_embed());
  }
  EXPECT_TRUE(eventually([&] { return port->has_unwanted_embed(); }));
}

TEST(RemoteEngine, ADeathFailsWhatRunsAndIsFollowedByANewStart) {
  auto port = std::make_shared<FakePort>();
  port->current.ready = true;
  Heard heard;
  Processes processes([port] { return port; });
  auto remote = make_remote_engine(processes.options());
  ASSERT_TRUE(eventually([&] { return remote->state().ready; }));
  engine::Request request;
  request.n = 2;
  remote->submit(request, heard.sink());
  ASSERT_TRUE(eventually([&] { return port->submitted() == 1; }));
  port->finish(engine::FinishReason::stop);
  ASSERT_TRUE(eventually([&] { return heard.count() == 1; }));
  processes.kill();
  ASSERT_TRUE(eventually([&] { return heard.count() == 2; }));
  // Only of the choice that had not ended.
  EXPECT_EQ(heard.events[1].choice, 1);
  ASSERT_TRUE(heard.events[1].finish->error);
  EXPECT_NE(
      std::string(heard.events[1].finish->error->what())
          .find("was killed by signal 9"),
      std::string::npos);
  ASSERT_TRUE(eventually([&] { return remote->state().ready; }));
  EXPECT_EQ(remote->state().restarts, 1U);
  EXPECT_EQ(processes.started, 2);
  remote->submit(request, heard.sink());
  EXPECT_TRUE(eventually([&] { return port->submitted() == 2; }));
}

TEST(RemoteEngine, GivesUpOnWhatNeverComesUp) {
  Processes processes([] { return nullptr; });
  auto remote = make_remote_engine(processes.options());
  ASSERT_TRUE(eventually([&] { return remote->state().is_final; }));
  EXPECT_FALSE(remote->state().healthy);
  EXPECT_EQ(processes.started, 3);
  EXPECT_THROW(remote->submit({}, [](engine::Event) {}), engine::Busy);
}

TEST(RemoteEngine, OpenStreamsEndWithAnErrorAndTheServerGoesOn) {
  ServedFake fake;
  std::atomic<bool> hold{true};
  fake.runner->fault = [&](const std::string& call, auto) {
    if (call == "read") {
      std::this_thread::sleep_for(milliseconds(hold ? 20 : 0));
    }
  };
  Processes processes([&] { return fake.make_engine(); });
  auto options = processes.options();
  options.first_wait = milliseconds(300);
  fake.services->engine = make_remote_engine(options);
  fake.start();
  ASSERT_TRUE(eventually([&] { return fake.services->engine->state().ready; }));
  std::string body = R"({"messages":[{"role":"user","content":")" +
      std::string(500, 'x') + R"("}],"stream":true})";
  auto post = [&](RawClient& client) {
    client.send(fmt::format(
        "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
        "Content-Length: {}\r\n\r\n{}",
        body.size(),
        body));
  };
  RawClient client(fake.server->port());
  post(client);
  EXPECT_TRUE(client.read_until("\"content\":\"x").ends_with("x"));
  processes.kill();
  std::string rest = client.read_all();
  EXPECT_NE(rest.find("\"error\""), std::string::npos) << rest;
  EXPECT_EQ(rest.find("[DONE]"), std::string::npos);
  RawClient health(fake.server->port());
  auto ask = [&] {
    health.send("GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n");
    return health.read_response().status;
  };
  EXPECT_EQ(ask(), 503);
  RawClient other(fake.server->port());
  post(other);
  auto refused = other.read_response();
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(refused.header("retry-after"), "2");
  EXPECT_TRUE(eventually([&] { return ask() == 200; }));
  hold = false;
  post(other);
  auto answer = other.read_response();
  EXPECT_EQ(answer.status, 200);
  EXPECT_NE(answer.body.find("[DONE]"), std::string::npos);
}

}  // namespace mlxx::server
