#include "mlxx/server/request_reader.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace mlxx::server {

namespace {

struct Outcome {
  int status = 0;  // of the refusal; 0: read
  HttpRequest request;
  bool is_done = false;
  std::string rest;
};

// `step` bytes arrive at a time.
Outcome read(const std::string& bytes, size_t step, HttpLimits limits = {}) {
  RequestReader reader(limits);
  Outcome outcome;
  std::string buffer;
  try {
    for (size_t i = 0; i < bytes.size() && !reader.is_done(); i += step) {
      buffer += bytes.substr(i, step);
      while (size_t taken = reader.feed(buffer)) {
        buffer.erase(0, taken);
      }
      outcome.rest = i + step < bytes.size() ? bytes.substr(i + step) : "";
    }
  } catch (const HttpError& error) {
    outcome.status = error.status();
  }
  outcome.request = reader.request();
  outcome.is_done = reader.is_done();
  outcome.rest = buffer + outcome.rest;
  return outcome;
}

std::string post(const std::string& headers, const std::string& body) {
  return "POST /v1/x HTTP/1.1\r\nHost: a\r\n" + headers + "\r\n" + body;
}

}  // namespace

TEST(RequestReader, TakesOneRequestHoweverItArrives) {
  std::string bytes =
      post("Content-Length: 5\r\nX-One: 1\r\n", "helloGET /next HTTP/1.1\r\n");
  for (size_t step : {1, 2, 7, 1000}) {
    auto outcome = read(bytes, step);
    ASSERT_TRUE(outcome.is_done) << step;
    EXPECT_EQ(outcome.request.method, "POST");
    EXPECT_EQ(outcome.request.path, "/v1/x");
    EXPECT_EQ(outcome.request.header("x-ONE"), "1");
    EXPECT_EQ(outcome.request.body, "hello");
    EXPECT_TRUE(
        outcome.rest.starts_with("GET /next") || step == 1 ||
        outcome.rest.find("/next") != std::string::npos)
        << outcome.rest;
  }
}

TEST(RequestReader, TakesChunksWithExtensionsAndTrailers) {
  std::string bytes = post(
      "Transfer-Encoding: chunked\r\n",
      "3;name=\"v\"\r\nabc\r\nA\r\n0123456789\r\n0\r\nAuthorization: "
      "x\r\n\r\n");
  for (size_t step : {1, 3, 1000}) {
    auto outcome = read(bytes, step);
    ASSERT_TRUE(outcome.is_done) << step << " status " << outcome.status;
    EXPECT_EQ(outcome.request.body, "abc0123456789");
    // A trailer is no header: it came after the checks.
    EXPECT_FALSE(outcome.request.has_header("authorization"));
  }
}

TEST(RequestReader, RefusesEveryDoubtfulFraming) {
  struct Case {
    const char* headers;
    int status;
  };
  const Case cases[] = {
      {"Content-Length: -1\r\n", 400},
      {"Content-Length: +5\r\n", 400},
      {"Content-Length: abc\r\n", 400},
      {"Content-Length: 0x5\r\n", 400},
      {"Content-Length: 5, 5\r\n", 400},
      {"Content-Length: \r\n", 400},
      {"Content-Length: 5 5\r\n", 400},
      {"Content-Length: 99999999999999999999999\r\n", 400},
      {"Content-Length: 5\r\nContent-Length: 5\r\n", 400},
      {"Content-Length: 5\r\nContent-Length: 6\r\n", 400},
      {"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", 400},
      {"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", 400},
      {"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", 400},
      {"Transfer-Encoding: gzip, chunked\r\n", 501},
      {"Transfer-Encoding: chunked, gzip\r\n", 501},
      {"Transfer-Encoding: xchunked\r\n", 501},
      {"Transfer-Encoding : chunked\r\n", 400},
      {"", 411},
      {"Content-Length: 5\r\nExpect: tea\r\n", 417},
      {"Content-Length: 5\r\nContent-Encoding: gzip\r\n", 415},
      {"Content-Length: 5\r\nHost: b\r\n", 400},
      {"Content-Length: 17000000\r\n", 413},
  };
  for (const auto& item : cases) {
    for (size_t step : {1, 1000}) {
      auto outcome = read(post(item.headers, "hello"), step);
      EXPECT_EQ(outcome.status, item.status) << item.headers;
      EXPECT_FALSE(outcome.is_done);
    }
  }
}

TEST(RequestReader, RefusesBrokenChunks) {
  for (const char* body :
       {"zz\r\nabc\r\n0\r\n\r\n",
        "3\r\nabcd\r\n0\r\n\r\n",
        "-3\r\nabc\r\n0\r\n\r\n",
        "FFFFFFFFFFFFFFFFF\r\n",
        "3 3\r\nabc\r\n0\r\n\r\n"}) {
    auto outcome = read(post("Transfer-Encoding: chunked\r\n", body), 1000);
    EXPECT_TRUE(outcome.status == 400 || outcome.status == 413) << body;
  }
  auto large =
      read(post("Transfer-Encoding: chunked\r\n", "FFFFFFF\r\nx"), 1000);
  EXPECT_EQ(large.status, 413);
  auto endless = read(
      post("Transfer-Encoding: chunked\r\n", "3;" + std::string(40000, 'x')),
      1000);
  EXPECT_EQ(endless.status, 400);
}

TEST(RequestReader, LimitsHeadersAndTargets) {
  auto get = [](const std::string& target, const std::string& headers) {
    return "GET " + target + " HTTP/1.1\r\nHost: a\r\n" + headers + "\r\n";
  };
  EXPECT_EQ(read(get("/" + std::string(9000, 'a'), ""), 500).status, 414);
  EXPECT_EQ(read(get("/" + std::string(65536, 'a'), ""), 500).status, 414);
  EXPECT_EQ(
      read(get("/", "X: " + std::string(40000, 'a') + "\r\n"), 500).status,
      431);
  std::string many;
  for (int i = 0; i < 200; ++i) {
    many += fmt::format("A{}: 1\r\n", i);
  }
  EXPECT_EQ(read(get("/", many), 500).status, 431);
  EXPECT_EQ(read(get("/%zz", ""), 500).status, 400);
  EXPECT_EQ(read(get("/%00", ""), 500).status, 400);
  EXPECT_EQ(read(get("/a%2fb?x=%zz", ""), 500).request.path, "/a/b");
  EXPECT_EQ(read("GET / HTTP/2.0\r\nHost: a\r\n\r\n", 500).status, 505);
  EXPECT_EQ(read("GET / HTTP/1.1\r\n\r\n", 500).status, 400);
  EXPECT_EQ(read("GET /\r\n\r\n", 500).status, 400);
  EXPECT_EQ(read("\x16\x03\x01\x02\r\n", 500).status, 400);
  EXPECT_TRUE(read("GET / HTTP/1.0\r\n\r\n", 500).is_done);
}

}  // namespace mlxx::server
