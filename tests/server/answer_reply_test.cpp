#include "mlxx/server/answer_reply.h"

#include <thread>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "mlxx/server/http_server.h"
#include "tests/server/fake_port.h"
#include "tests/server/raw_client.h"

namespace mlxx::server {

namespace {

using std::chrono::milliseconds;

// The simplest protocol there could be.
class PlainAnswer : public api::Answer {
 public:
  PlainAnswer(bool streams, int prompts, int n)
      : streams_(streams), prompts_(prompts), n_(n) {}
  std::vector<engine::Request> take_requests() override {
    std::vector<engine::Request> requests(prompts_);
    for (auto& request : requests) {
      request.n = n_;
    }
    return requests;
  }
  bool streams() const override {
    return streams_;
  }
  const std::vector<std::string>& ignored() const override {
    return ignored_;
  }
  std::string take(size_t index, const engine::Event& event) override {
    text_ += event.text;
    if (event.text == "throw") {
      throw std::runtime_error("oops");
    }
    return streams_ ? fmt::format("data: {}{}\n\n", index, event.text) : "";
  }
  std::string begin() override {
    return streams_ ? "data: begin\n\n" : "";
  }
  std::string end() override {
    return "data: [DONE]\n\n";
  }
  std::string body() override {
    return fmt::format("{{\"text\": \"{}\"}}", text_);
  }
  std::string failure(const Error& error) override {
    return fmt::format("data: {}\n\n", error.what());
  }

 private:
  bool streams_;
  size_t prompts_;
  int n_;
  std::string text_;
  std::vector<std::string> ignored_ = {"mystery", "bad\r\nname"};
};

class AnswerHandler : public HttpHandler {
 public:
  explicit AnswerHandler(Services& services) : services_(services) {}
  std::optional<HttpResponse> refuse(HttpRequest&, bool) override {
    return std::nullopt;
  }
  bool is_immediate(const HttpRequest&) override {
    return false;
  }
  Reply handle(const HttpRequest& request) override {
    try {
      return make_answer_reply(
          services_,
          request,
          std::make_unique<PlainAnswer>(
              request.path == "/stream",
              request.header("prompts").empty() ? 1 : 2,
              request.header("choices").empty() ? 1 : 2));
    } catch (const std::exception& error) {
      return server::error_response(request, error);
    }
  }
  HttpResponse error_response(
      const HttpRequest&,
      int status,
      const std::string& message) override {
    return json_response(message, status);
  }
  void served(const HttpRequest&, const Served&) override {}

 private:
  Services& services_;
};

class AnswerReplyTest : public ::testing::Test {
 protected:
  void SetUp() override {
    services_.engine = port_;
    options_.port = 0;
    options_.limits.linger_timeout = milliseconds(300);
    options_.limits.write_timeout = milliseconds(300);
    server_ = std::make_unique<HttpServer>(options_, handler_);
  }
  static std::string post(
      const std::string& path,
      const std::string& headers = "") {
    return fmt::format(
        "POST {} HTTP/1.1\r\nHost: a\r\n{}Content-Length: 0\r\n\r\n",
        path,
        headers);
  }
  bool eventually(const std::function<bool()>& condition) {
    for (int i = 0; i < 500 && !condition(); ++i) {
      std::this_thread::sleep_for(milliseconds(10));
    }
    return condition();
  }
  void wait_for_request(size_t count = 1) {
    ASSERT_TRUE(eventually([&] { return port_->submitted() >= count; }));
  }

  std::shared_ptr<FakePort> port_ = std::make_shared<FakePort>();
  Services services_;
  AnswerHandler handler_{services_};
  HttpOptions options_;
  std::unique_ptr<HttpServer> server_;
};

}  // namespace

TEST_F(AnswerReplyTest, WholeAnswersWaitForAllChoices) {
  RawClient client(server_->port());
  client.send(post("/whole", "Prompts: 2\r\nChoices: 2\r\n"));
  wait_for_request(2);
  for (engine::RequestId id : {1, 2}) {
    for (int choice = 0; choice < 2; ++choice) {
      engine::Event event;
      event.choice = choice;
      event.text = "x";
      event.finish.emplace();
      port_->say(std::move(event), id);
    }
  }
  auto response = client.read_response();
  EXPECT_EQ(response.status, 200);
  EXPECT_EQ(response.body, "{\"text\": \"xxxx\"}");
  // A name cannot end the header.
  EXPECT_EQ(response.header("x-mlxx-ignored"), "mystery, bad??name");
  EXPECT_FALSE(port_->was_cancelled(1));
}

TEST_F(AnswerReplyTest, StreamsHoldTheirHeadUntilSomethingHappened) {
  RawClient client(server_->port());
  client.send(post("/stream"));
  wait_for_request();
  EXPECT_EQ(client.read_until("\r\n", milliseconds(100)), "");
  port_->say_text("a");
  std::string head = client.read_until("\r\n\r\n");
  EXPECT_TRUE(head.starts_with("HTTP/1.1 200"));
  EXPECT_NE(head.find("Content-Type: text/event-stream"), std::string::npos);
  EXPECT_TRUE(client.read_until("data: 0a\n\n")
                  .ends_with("data: begin\n\ndata: 0a\n\n"));
  port_->say_text("b");
  port_->finish(engine::FinishReason::stop);
  EXPECT_NE(
      client.read_until("0\r\n\r\n").find("data: [DONE]"),
      std::string::npos);
}

TEST_F(AnswerReplyTest, WhatFailsBeforeTheFirstEventHasAStatus) {
  for (const char* path : {"/stream", "/whole"}) {
    RawClient client(server_->port());
    auto before = port_->submitted();
    client.send(post(path));
    wait_for_request(before + 1);
    port_->finish(
        engine::FinishReason::error,
        std::make_shared<engine::Busy>("[engine] stopping", 3, false));
    auto response = client.read_response();
    EXPECT_EQ(response.status, 503);
    EXPECT_EQ(response.header("retry-after"), "3");
    EXPECT_NE(response.body.find("stopping"), std::string::npos);
    client.send(post(path));
    wait_for_request(before + 2);
    port_->finish(
        engine::FinishReason::error,
        std::make_shared<Error>(ErrorKind::internal, "[step] broke"));
    EXPECT_EQ(client.read_response().status, 500);
  }
  port_->refuse = true;
  RawClient client(server_->port());
  client.send(post("/stream"));
  auto response = client.read_response();
  EXPECT_EQ(response.status, 429);
  EXPECT_EQ(response.header("retry-after"), "7");
}

TEST_F(AnswerReplyTest, WhatFailsLaterEndsTheStreamWithoutATerminator) {
  for (int way = 0; way < 3; ++way) {
    RawClient client(server_->port());
    client.send(post("/stream"));
    wait_for_request(static_cast<size_t>(way) + 1);
    port_->say_text("a");
    client.read_until("data: 0a\n\n");
    if (way == 0) {
      port_->finish(
          engine::FinishReason::error,
          std::make_shared<Error>(ErrorKind::internal, "[step] broke"));
    } else if (way == 1) {
      port_->finish(engine::FinishReason::cancelled);
    } else {
      port_->say_text("throw");
    }
    std::string rest = client.read_all();
    EXPECT_EQ(rest.find("[DONE]"), std::string::npos);
    EXPECT_FALSE(rest.ends_with("0\r\n\r\n"));
    EXPECT_NE(
        rest.find(
            way == 0       ? "[step] broke"
                : way == 1 ? "the server stops"
                           : "the answer failed"),
        std::string::npos)
        << rest;
    EXPECT_TRUE(port_->was_cancelled(port_->last_id));
  }
}

TEST_F(AnswerReplyTest, ClientsThatLeaveCancelWaitingAndRunningRequests) {
  for (const char* path : {"/stream", "/whole"}) {
    for (bool has_begun : {false, true}) {
      RawClient client(server_->port());
      auto before = port_->submitted();
      client.send(post(path));
      wait_for_request(before + 1);
      if (has_begun) {
        port_->say_text("a");
      }
      auto id = port_->last_id;
      EXPECT_FALSE(port_->was_cancelled(id));
      client.close();
      EXPECT_TRUE(eventually([&] { return port_->was_cancelled(id); }));
    }
  }
}

TEST_F(AnswerReplyTest, PipelinedBytesDoNotHideThatTheClientLeft) {
  RawClient client(server_->port());
  client.send(post("/whole") + post("/whole"));
  wait_for_request();
  client.close();
  EXPECT_TRUE(eventually([&] { return port_->was_cancelled(1); }));
}

TEST_F(AnswerReplyTest, ReadersThatDoNotReadAreCutOff) {
  services_.max_unsent_bytes = 1 << 20;
  RawClient client(server_->port());
  client.shrink_receive_buffer();
  client.send(post("/stream"));
  wait_for_request();
  std::string text(100'000, 'x');
  for (int i = 0; i < 300 && !port_->was_cancelled(1); ++i) {
    port_->say_text(text);
    std::this_thread::sleep_for(milliseconds(1));
  }
  EXPECT_TRUE(eventually([&] { return port_->was_cancelled(1); }));
  EXPECT_TRUE(eventually([&] { return server_->connections() == 0; }));
  // Late events find nobody, and harm nobody.
  port_->say_text("late");
}

}  // namespace mlxx::server
