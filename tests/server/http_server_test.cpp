#include "mlxx/server/http_server.h"

#include <atomic>
#include <mutex>
#include <thread>

#include <gtest/gtest.h>
#include <unistd.h>

#include "tests/server/raw_client.h"

namespace mlxx::server {

namespace {

using std::chrono::milliseconds;

// Gives what the test puts into it, as an engine would give its events.
struct Feed {
  std::mutex mutex;
  std::function<void()> wake;
  std::string data;
  bool head = false;
  bool done = false;
  bool failed = false;
  std::atomic<bool> overfull{false};
  std::atomic<bool> cancelled{false};
  std::atomic<bool> destroyed{false};

  void give(const std::string& text, bool end = false, bool failure = false) {
    std::function<void()> call;
    {
      std::lock_guard lock(mutex);
      data += text;
      done = done || end;
      failed = failed || failure;
      call = wake;
    }
    if (call) {
      call();
    }
  }
};

class FeedReply : public PendingReply {
 public:
  explicit FeedReply(std::shared_ptr<Feed> feed) : feed_(std::move(feed)) {}
  ~FeedReply() override {
    feed_->destroyed = true;
  }
  void set_wake(std::function<void()> wake) override {
    std::lock_guard lock(feed_->mutex);
    feed_->wake = wake;
    if (!feed_->data.empty() || feed_->done) {
      wake();
    }
  }
  ReplyPiece pull() override {
    std::lock_guard lock(feed_->mutex);
    ReplyPiece piece;
    piece.data = std::exchange(feed_->data, {});
    piece.done = feed_->done;
    piece.failed = feed_->failed;
    if (!feed_->head && (!piece.data.empty() || piece.done)) {
      feed_->head = true;
      HttpResponse head;
      head.content_type = "text/event-stream";
      if (piece.data.starts_with("whole")) {
        head.body = std::exchange(piece.data, {});
        piece.done = true;
      }
      piece.head = head;
    }
    return piece;
  }
  std::optional<HttpResponse> head_so_far() override {
    std::lock_guard lock(feed_->mutex);
    feed_->head = true;
    return HttpResponse();
  }
  std::string keep_alive_data() override {
    return ":\n\n";
  }
  bool is_overfull() const override {
    return feed_->overfull;
  }
  void cancel() override {
    feed_->cancelled = true;
  }

 private:
  std::shared_ptr<Feed> feed_;
};

class TestHandler : public HttpHandler {
 public:
  std::optional<HttpResponse> refuse(HttpRequest& request, bool only_status)
      override {
    HttpResponse response;
    if (only_status && request.path != "/health") {
      response.status = 503;
      return response;
    }
    if (request.path == "/forbidden") {
      response.status = 403;
      return response;
    }
    return std::nullopt;
  }
  bool is_immediate(const HttpRequest& request) override {
    return request.path == "/health";
  }
  Reply handle(const HttpRequest& request) override {
    HttpResponse response;
    if (request.path == "/throw") {
      throw std::runtime_error("oops");
    }
    if (request.path == "/feed") {
      return std::make_unique<FeedReply>(feed);
    }
    if (request.path == "/slow") {
      std::this_thread::sleep_for(milliseconds(150));
    }
    response.body = request.method + " " + request.path + " " + request.body;
    return response;
  }
  HttpResponse error_response(
      const HttpRequest&,
      int status,
      const std::string& message) override {
    HttpResponse response;
    response.status = status;
    response.body = message;
    return response;
  }
  void served(const HttpRequest&, const Served& how) override {
    std::lock_guard lock(mutex);
    served_requests.push_back(how);
  }

  std::shared_ptr<Feed> feed = std::make_shared<Feed>();
  std::mutex mutex;
  std::vector<Served> served_requests;
};

class HttpServerTest : public ::testing::Test {
 protected:
  void start() {
    options_.port = 0;
    options_.limits.linger_timeout = milliseconds(300);
    server_ = std::make_unique<HttpServer>(options_, handler_);
  }
  bool eventually(const std::function<bool()>& condition) {
    for (int i = 0; i < 500 && !condition(); ++i) {
      std::this_thread::sleep_for(milliseconds(10));
    }
    return condition();
  }
  static std::string get(const std::string& path) {
    return "GET " + path + " HTTP/1.1\r\nHost: localhost\r\n\r\n";
  }
  static std::string post(const std::string& path, const std::string& body) {
    return "POST " + path + " HTTP/1.1\r\nHost: localhost\r\nContent-Length: " +
        std::to_string(body.size()) + "\r\n\r\n" + body;
  }

  HttpOptions options_;
  TestHandler handler_;
  std::unique_ptr<HttpServer> server_;
};

}  // namespace

TEST_F(HttpServerTest, KeepsConnectionsAndAnswersPipelinedRequestsInOrder) {
  start();
  RawClient client(server_->port());
  client.send(get("/slow") + post("/b", "body") + get("/health"));
  EXPECT_EQ(client.read_response().body, "GET /slow ");
  EXPECT_EQ(client.read_response().body, "POST /b body");
  auto last = client.read_response();
  EXPECT_EQ(last.body, "GET /health ");
  EXPECT_TRUE(last.header("x-request-id").starts_with("req_"));
  client.send(
      "HEAD /h HTTP/1.1\r\nHost: a\r\nX-Request-Id: mine-1\r\n"
      "Connection: close\r\n\r\n");
  auto head = client.read_response(true);
  EXPECT_EQ(head.header("content-length"), "8");
  EXPECT_EQ(head.header("x-request-id"), "mine-1");
  EXPECT_EQ(client.read_all(), "");
}

TEST_F(HttpServerTest, ServesHttp10AndClosesUnlessAsked) {
  start();
  RawClient client(server_->port());
  client.send("GET /a HTTP/1.0\r\n\r\n");
  std::string all = client.read_all();
  EXPECT_NE(all.find("\r\n\r\nGET /a "), std::string::npos) << all;
  RawClient stream(server_->port());
  stream.send("POST /feed HTTP/1.0\r\nContent-Length: 0\r\n\r\n");
  handler_.feed->give("data: 1\n\n", true);
  all = stream.read_all();
  EXPECT_TRUE(all.ends_with("\r\n\r\ndata: 1\n\n")) << all;
  EXPECT_EQ(all.find("chunked"), std::string::npos);
}

TEST_F(HttpServerTest, SaysContinueOnlyToWhatItWillTake) {
  start();
  RawClient client(server_->port());
  std::string head = "POST /a HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n";
  client.send(head + "Content-Length: 4\r\n\r\n");
  EXPECT_EQ(client.read_until("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  client.send("body");
  EXPECT_EQ(client.read_response().body, "POST /a body");
  client.send(head + "Content-Length: 400000000\r\n\r\n");
  EXPECT_EQ(client.read_response().status, 413);
  EXPECT_TRUE(client.is_closed(milliseconds(3000)));
  RawClient other(server_->port());
  other.send(
      "POST /forbidden HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n"
      "Content-Length: 4\r\n\r\n");
  EXPECT_EQ(other.read_response().status, 403);
}

TEST_F(HttpServerTest, AnswersWhatItCannotReadAndCloses) {
  start();
  for (const char* bytes :
       {"garbage\r\n\r\n",
        "POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n",
        "GET / HTTP/1.1\r\n\r\n"}) {
    RawClient client(server_->port());
    client.send(bytes);
    auto response = client.read_response();
    EXPECT_EQ(response.status, 400) << bytes;
    EXPECT_EQ(response.header("connection"), "close");
    EXPECT_TRUE(client.is_closed(milliseconds(3000)));
  }
  // The body is longer than it says it is read: the rest is no request.
  RawClient client(server_->port());
  client.send(post("/a", "x") + std::string(300'000, 'y'));
  EXPECT_EQ(client.read_response().body, "POST /a x");
  EXPECT_GE(client.read_response().status, 400);
  RawClient cut(server_->port());
  cut.send("POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nabc");
  cut.half_close();
  EXPECT_EQ(cut.read_response().status, 400);
  RawClient thrower(server_->port());
  thrower.send(get("/throw"));
  EXPECT_EQ(thrower.read_response().status, 500);
}

TEST_F(HttpServerTest, SlowSendersAreTimedOut) {
  options_.limits.header_timeout = milliseconds(200);
  options_.limits.body_timeout = milliseconds(200);
  options_.limits.idle_timeout = milliseconds(300);
  start();
  RawClient header(server_->port());
  header.send("GET / HT");
  EXPECT_EQ(header.read_response().status, 408);
  RawClient body(server_->port());
  body.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nabc");
  EXPECT_EQ(body.read_response().status, 408);
  RawClient silent(server_->port());
  EXPECT_TRUE(silent.is_closed(milliseconds(3000)));
  RawClient idle(server_->port());
  idle.send(get("/a"));
  EXPECT_EQ(idle.read_response().status, 200);
  EXPECT_EQ(idle.read_all(), "");
  // A byte now and then does not help.
  RawClient dripping(server_->port());
  auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < 50 && dripping.send("G"); ++i) {
    std::this_thread::sleep_for(milliseconds(20));
    if (dripping.is_closed(milliseconds(1))) {
      break;
    }
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, milliseconds(1000));
}

TEST_F(HttpServerTest, StreamsAsTheDataComes) {
  start();
  RawClient client(server_->port());
  client.send(post("/feed", ""));
  handler_.feed->give("data: 1\n\n");
  EXPECT_TRUE(client.read_until("data: 1\n\n").ends_with("data: 1\n\n"));
  handler_.feed->give("data: 2\n\n");
  EXPECT_EQ(client.read_until("data: 2\n\n\r\n"), "\r\n9\r\ndata: 2\n\n\r\n");
  handler_.feed->give("", true);
  EXPECT_EQ(client.read_until("0\r\n\r\n"), "0\r\n\r\n");
  client.send(get("/a"));
  EXPECT_EQ(client.read_response().body, "GET /a ");
}

TEST_F(HttpServerTest, AFailedStreamDoesNotLookComplete) {
  start();
  RawClient client(server_->port());
  client.send(post("/feed", ""));
  handler_.feed->give("data: 1\n\n");
  client.read_until("data: 1\n\n");
  handler_.feed->give("data: error\n\n", true, true);
  std::string rest = client.read_all();
  EXPECT_NE(rest.find("data: error"), std::string::npos);
  EXPECT_FALSE(rest.ends_with("0\r\n\r\n"));
}

TEST_F(HttpServerTest, ClientsThatLeaveCancelTheirRequests) {
  start();
  for (int way = 0; way < 3; ++way) {
    handler_.feed = std::make_shared<Feed>();
    auto feed = handler_.feed;
    RawClient client(server_->port());
    client.send(post("/feed", ""));
    EXPECT_TRUE(eventually([&] {
      std::lock_guard lock(feed->mutex);
      return static_cast<bool>(feed->wake);
    }));
    if (way == 0) {
      client.close();
    } else if (way == 1) {
      client.reset();
    } else {
      client.half_close();
    }
    EXPECT_TRUE(eventually([&] { return feed->destroyed.load(); })) << way;
    EXPECT_TRUE(feed->cancelled);
  }
}

TEST_F(HttpServerTest, SlowReadersAreCutOff) {
  options_.limits.write_timeout = milliseconds(200);
  start();
  auto feed = handler_.feed;
  RawClient client(server_->port());
  client.shrink_receive_buffer();
  client.send(post("/feed", ""));
  feed->give("data: begin\n\n");
  client.read_until("begin");
  feed->give(std::string(20 << 20, 'x'));
  EXPECT_TRUE(eventually([&] { return feed->cancelled.load(); }));

  handler_.feed = std::make_shared<Feed>();
  options_.limits.write_timeout = milliseconds(60'000);
  feed = handler_.feed;
  RawClient other(server_->port());
  other.shrink_receive_buffer();
  other.send(post("/feed", ""));
  feed->give(std::string(20 << 20, 'x'));
  std::this_thread::sleep_for(milliseconds(50));
  feed->overfull = true;
  feed->give("y");
  EXPECT_TRUE(eventually([&] { return feed->cancelled.load(); }));
}

TEST_F(HttpServerTest, SilentStreamsGetHeadersAndComments) {
  options_.limits.stream_silence = milliseconds(50);
  start();
  RawClient client(server_->port());
  client.send(post("/feed", ""));
  EXPECT_TRUE(client.read_until("\r\n\r\n").starts_with("HTTP/1.1 200"));
  EXPECT_EQ(client.read_until("\r\n:\n\n\r\n"), "3\r\n:\n\n\r\n");
  handler_.feed->give("data: 1\n\n", true);
  EXPECT_TRUE(client.read_until("0\r\n\r\n").ends_with("0\r\n\r\n"));
}

TEST_F(HttpServerTest, HealthAnswersWhenAllConnectionsAreTaken) {
  options_.limits.max_connections = 4;
  options_.limits.reserved_connections = 2;
  options_.limits.header_timeout = milliseconds(20'000);
  start();
  std::vector<std::unique_ptr<RawClient>> busy;
  for (int i = 0; i < 4; ++i) {
    busy.push_back(std::make_unique<RawClient>(server_->port()));
    busy.back()->send("GET / HTTP/1.1\r\n");
  }
  ASSERT_TRUE(eventually([&] { return server_->connections() == 4; }));
  std::this_thread::sleep_for(milliseconds(50));
  for (int i = 0; i < 3; ++i) {
    RawClient client(server_->port());
    client.send(get("/health"));
    EXPECT_EQ(client.read_response().status, 200);
    EXPECT_TRUE(client.is_closed(milliseconds(3000)));
    RawClient other(server_->port());
    other.send(get("/a"));
    EXPECT_EQ(other.read_response().status, 503);
    EXPECT_TRUE(other.is_closed(milliseconds(3000)));
    client.close();
    other.close();
    ASSERT_TRUE(eventually([&] { return server_->connections() == 4; }));
  }
}

TEST_F(HttpServerTest, IdleConnectionsMakeRoom) {
  options_.limits.max_connections = 4;
  start();
  std::vector<std::unique_ptr<RawClient>> idle;
  for (int i = 0; i < 4; ++i) {
    idle.push_back(std::make_unique<RawClient>(server_->port()));
    idle.back()->send(get("/a"));
    EXPECT_EQ(idle.back()->read_response().status, 200);
  }
  bool served = false;
  for (int i = 0; i < 20 && !served; ++i) {
    RawClient client(server_->port());
    client.send(get("/a"));
    served = client.read_response().status == 200;
  }
  EXPECT_TRUE(served);
  EXPECT_TRUE(idle.front()->is_closed(milliseconds(3000)));
}

TEST_F(HttpServerTest, AnAddressWithItsShareMakesRoomForItself) {
  options_.limits.max_connections_per_address = 3;
  options_.limits.reserved_connections = 1;
  start();
  std::vector<std::unique_ptr<RawClient>> silent;
  for (int i = 0; i < 6; ++i) {
    silent.push_back(std::make_unique<RawClient>(server_->port()));
  }
  RawClient client(server_->port());
  client.send(get("/a"));
  EXPECT_EQ(client.read_response().status, 200);
}

TEST_F(HttpServerTest, StopsWithoutLosingAnAnswer) {
  start();
  int port = server_->port();
  RawClient idle(port);
  idle.send(get("/a"));
  idle.read_response();
  RawClient busy(port);
  busy.send(post("/feed", ""));
  handler_.feed->give("data: 1\n\n");
  busy.read_until("data: 1\n\n");
  server_->stop_accepting();
  EXPECT_TRUE(idle.is_closed(milliseconds(3000)));
  EXPECT_THROW(RawClient late(port), std::runtime_error);
  std::thread closing([&] { server_->close(std::chrono::seconds(10)); });
  handler_.feed->give("data: 2\n\n", true);
  EXPECT_TRUE(busy.read_all().ends_with("0\r\n\r\n"));
  closing.join();
  EXPECT_EQ(server_->connections(), 0U);
}

TEST_F(HttpServerTest, ListensOnAUnixSocket) {
  options_.unix_socket =
      ::testing::TempDir() + "mlxx_" + std::to_string(getpid()) + ".sock";
  start();
  RawClient client(options_.unix_socket);
  client.send(get("/a"));
  EXPECT_EQ(client.read_response().body, "GET /a ");
  TestHandler handler;
  EXPECT_THROW(HttpServer(options_, handler), std::exception);
  client.close();
  server_.reset();
  EXPECT_THROW(RawClient gone(options_.unix_socket), std::runtime_error);
}

}  // namespace mlxx::server
