#include <random>
#include <thread>

#include <gtest/gtest.h>

#include "tests/server/raw_client.h"
#include "tests/server/served_fake.h"

namespace mlxx::server {

namespace {

using std::chrono::milliseconds;

class HostileClientsTest : public ::testing::Test {
 protected:
  std::string post(const std::string& path, const std::string& body) {
    return fmt::format(
        "POST {} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n{}",
        path,
        body.size(),
        body);
  }
  RawClient::Response ask(const std::string& bytes) {
    RawClient client(fake_.server->port());
    client.send(bytes);
    return client.read_response();
  }
  RawClient::Response chat(const std::string& more) {
    return ask(post(
        "/v1/chat/completions",
        fmt::format(
            R"({{"messages":[{{"role":"user","content":"a"}}]{}}})",
            more)));
  }
  void expect_alive() {
    auto health = ask("GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n");
    EXPECT_EQ(health.body, "{\"status\": \"ok\"}");
    auto answer = chat("");
    EXPECT_EQ(answer.status, 200) << answer.body;
  }
  bool eventually(const std::function<bool()>& condition) {
    for (int i = 0; i < 500; ++i) {
      if (condition()) {
        return true;
      }
      std::this_thread::sleep_for(milliseconds(10));
    }
    return false;
  }
  static std::string repeat(const std::string& text, size_t times) {
    std::string result;
    for (size_t i = 0; i < times; ++i) {
      result += text;
    }
    return result;
  }

  ServedFake fake_;
};

}  // namespace

TEST_F(HostileClientsTest, DeepNestingIsRefused) {
  fake_.start();
  std::string arrays = repeat("[", 3000) + repeat("]", 3000);
  EXPECT_EQ(chat(R"(,"tools":)" + arrays).status, 400);
  EXPECT_EQ(chat(R"(,"metadata":)" + arrays).status, 400);
  std::string schema = repeat(R"({"type":"array","items":)", 5000) +
      R"({"type":"string"})" + repeat("}", 5000);
  EXPECT_EQ(
      chat(
          R"(,"response_format":{"type":"json_schema","json_schema":)"
          R"({"name":"x","schema":)" +
          schema + "}}")
          .status,
      400);
  EXPECT_EQ(
      chat(R"(,"response_format":{"type":"json_schema","json_schema":)"
           R"({"name":"x","schema":{"$ref":"#/$defs/a","$defs":{"a":)"
           R"({"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}}}}})")
          .status,
      400);
  EXPECT_EQ(
      ask(post("/v1/messages", R"({"messages":)" + arrays + "}")).status,
      400);
  EXPECT_EQ(
      ask(post("/v1/responses", R"({"input":)" + arrays + "}")).status,
      400);
  expect_alive();
}

TEST_F(HostileClientsTest, TemplatesOfRequestsAreRefused) {
  fake_.start();
  for (const char* more :
       {R"(,"chat_template":"{% for i in range(10**9) %}x{% endfor %}")",
        R"(,"chat_template_kwargs":{"chat_template":"x"})",
        R"(,"chat_template_kwargs":{"messages":[]})",
        R"(,"chat_template_kwargs":{"add_generation_prompt":false})"}) {
    EXPECT_EQ(chat(more).status, 400) << more;
  }
  expect_alive();
}

TEST_F(HostileClientsTest, HugeNumbersAndListsAreRefused) {
  fake_.start();
  for (const char* more :
       {R"(,"n":1000000000)",
        R"(,"n":-1)",
        R"(,"max_tokens":4611686018427387904)",
        R"(,"logprobs":true,"top_logprobs":300)",
        R"(,"logit_bias":{"1e9":5})",
        R"(,"seed":1e300)"}) {
    EXPECT_EQ(chat(more).status, 400) << more;
  }
  std::string stops = "\"x\"" + repeat(",\"x\"", 1'000'000);
  EXPECT_EQ(chat(R"(,"stop":[)" + stops + "]").status, 400);
  EXPECT_EQ(
      ask(post("/v1/completions", R"({"prompt":[)" + stops + "]}")).status,
      400);
  // Its length alone is enough.
  EXPECT_EQ(
      ask("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
          "Content-Length: 100000000\r\n\r\n{")
          .status,
      413);
  expect_alive();
}

TEST_F(HostileClientsTest, RequestsChooseNoFiles) {
  fake_.start();
  for (const char* model :
       {"/etc/passwd",
        "../x",
        "~/m",
        "file:///x",
        "a/b",
        "fake\\u0000",
        "fake/../fake",
        "https://host/m",
        "."}) {
    auto response = chat(fmt::format(R"(,"model":"{}")", model));
    EXPECT_TRUE(response.status == 404 || response.status == 400) << model;
    EXPECT_EQ(response.body.find("root:"), std::string::npos);
  }
  EXPECT_EQ(
      chat(R"(,"model":")" + std::string(1 << 20, 'x') + "\"").status,
      400);
  expect_alive();
}

TEST_F(HostileClientsTest, FloodsOfHeadersAndUrlsAreRefused) {
  fake_.start();
  EXPECT_EQ(
      ask("GET /health HTTP/1.1\r\nHost: localhost\r\n" +
          repeat("X-Flood: yes\r\n", 10'000) + "\r\n")
          .status,
      431);
  EXPECT_EQ(
      ask("GET /" + std::string(65536, 'a') + " HTTP/1.1\r\nHost: a\r\n\r\n")
          .status,
      414);
  expect_alive();
}

TEST_F(HostileClientsTest, PipelinedRequestsAreAnsweredInOrder) {
  fake_.start();
  RawClient client(fake_.server->port());
  std::string all;
  for (int i = 0; i < 300; ++i) {
    all += post("/tokenize", fmt::format(R"({{"content":"{}"}})", "a"));
    all += fmt::format(
        "GET /health HTTP/1.1\r\nHost: localhost\r\nX-Request-Id: i{}\r\n\r\n",
        i);
  }
  std::thread sender([&] { client.send(all); });
  for (int i = 0; i < 300; ++i) {
    EXPECT_EQ(client.read_response().status, 200);
    ASSERT_EQ(
        client.read_response().header("x-request-id"),
        fmt::format("i{}", i));
  }
  sender.join();
}

TEST_F(HostileClientsTest, IdleConnectionsKeepNobodyOut) {
  fake_.http.limits.max_connections = 50;
  fake_.start();
  std::vector<std::unique_ptr<RawClient>> idle;
  for (int i = 0; i < 200; ++i) {
    idle.push_back(std::make_unique<RawClient>(fake_.server->port()));
  }
  EXPECT_TRUE(eventually([&] {
    return ask("GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n").status == 200;
  }));
  EXPECT_TRUE(eventually([&] { return chat("").status == 200; }));
  EXPECT_LE(fake_.server->connections(), 83U);
}

TEST_F(HostileClientsTest, RequestsOfClientsThatLeftAreNotComputed) {
  fake_.engine_options.max_rows = 1;
  std::atomic<int> steps{0};
  fake_.runner->fault = [&](const std::string& call, auto) {
    if (call == "read") {
      ++steps;
      std::this_thread::sleep_for(milliseconds(2));
    }
  };
  // Never ends by itself.
  fake_.runner->next = [](const engine::FakeRow&) { return 'x'; };
  fake_.start();
  auto body = R"({"prompt":"p","max_tokens":100000,"stream":true})";
  std::vector<std::unique_ptr<RawClient>> clients;
  for (int i = 0; i < 6; ++i) {
    clients.push_back(std::make_unique<RawClient>(fake_.server->port()));
    clients.back()->send(post("/v1/completions", body));
  }
  auto stats = [&] { return fake_.services->engine->stats(); };
  ASSERT_TRUE(eventually(
      [&] { return stats().waiting == 5 && stats().decoding == 1; }));
  for (size_t i : {2, 3, 4}) {
    clients[i]->close();
  }
  EXPECT_TRUE(eventually([&] { return stats().waiting == 2; }));
  EXPECT_EQ(stats().cancelled, 3U);
  clients[0]->reset();
  clients[1]->half_close();
  clients[5]->close();
  EXPECT_TRUE(eventually(
      [&] { return stats().waiting == 0 && stats().decoding == 0; }));
  int before = steps;
  std::this_thread::sleep_for(milliseconds(50));
  EXPECT_EQ(steps, before);
}

TEST_F(HostileClientsTest, AFullQueueSaysWhenToComeBack) {
  fake_.engine_options.max_rows = 1;
  fake_.engine_options.max_queue = 1;
  fake_.runner->next = [](const engine::FakeRow&) { return 'x'; };
  fake_.start();
  auto body = R"({"prompt":"p","max_tokens":100000,"stream":true})";
  auto stats = [&] { return fake_.services->engine->stats(); };
  RawClient running(fake_.server->port());
  running.send(post("/v1/completions", body));
  ASSERT_TRUE(eventually([&] { return stats().decoding == 1; }));
  RawClient waiting(fake_.server->port());
  waiting.send(post("/v1/completions", body));
  ASSERT_TRUE(eventually([&] { return stats().waiting == 1; }));
  for (int i = 0; i < 5; ++i) {
    auto refused = ask(post("/v1/completions", body));
    EXPECT_EQ(refused.status, 429);
    EXPECT_NE(refused.header("retry-after"), "");
  }
}

TEST_F(HostileClientsTest, DamagedRequestsNeverKillIt) {
  fake_.http.limits.header_timeout = milliseconds(2000);
  fake_.http.limits.body_timeout = milliseconds(50);
  fake_.http.limits.linger_timeout = milliseconds(20);
  fake_.start();
  std::mt19937 random(7);
  const std::string good = post(
      "/v1/chat/completions",
      R"({"messages":[{"role":"user","content":"hello"}],"max_tokens":3,)"
      R"("stop":["x"],"temperature":0.5,"stream":true})");
  for (int i = 0; i < 150; ++i) {
    std::string bytes = good;
    int changes = 1 + static_cast<int>(random() % 4);
    for (int c = 0; c < changes && !bytes.empty(); ++c) {
      size_t at = random() % bytes.size();
      switch (random() % 4) {
        case 0:
          bytes[at] = static_cast<char>(random());
          break;
        case 1:
          bytes.erase(at, random() % 20);
          break;
        case 2:
          bytes.insert(at, bytes.substr(random() % bytes.size(), 9));
          break;
        default:
          bytes.resize(at + 1);
      }
    }
    RawClient client(fake_.server->port());
    client.send(bytes);
    client.half_close();
    auto all = client.read_all(std::chrono::seconds(5));
    EXPECT_TRUE(all.empty() || all.starts_with("HTTP/1.1 ")) << all;
  }
  expect_alive();
}

}  // namespace mlxx::server
