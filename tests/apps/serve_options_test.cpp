#include "apps/mlxx/serve_options.h"

#include <gtest/gtest.h>

#include "apps/mlxx/serve_log.h"
#include "mlxx/base/error.h"

namespace mlxx::apps {

TEST(ServeOptions, SizesHaveUnits) {
  EXPECT_EQ(parse_bytes("0", "x"), 0U);
  EXPECT_EQ(parse_bytes("1000", "x"), 1000U);
  EXPECT_EQ(parse_bytes("800MB", "x"), 800'000'000U);
  EXPECT_EQ(parse_bytes("1.5 gib", "x"), size_t{3} << 29);
  for (const char* wrong :
       {"", "GB", "-1", "1 parsec", "1e30", "nan", "12GB!", "1e400"}) {
    EXPECT_THROW(parse_bytes(wrong, "--memory-budget"), Error) << wrong;
  }
}

TEST(ServeOptions, OriginsAndKeysAreChecked) {
  auto finish = [](auto change) {
    ServeOptions options;
    change(options);
    finish_serve_options(options);
    return options;
  };
  auto options = finish([](ServeOptions& o) {
    o.access.allowed_origins = {"https://a.example, http://b:1"};
    o.access.api_keys = {"k1"};
  });
  EXPECT_EQ(options.access.allowed_origins.size(), 2U);
  EXPECT_EQ(options.models.size(), 1U);
  EXPECT_THROW(
      finish([](ServeOptions& o) { o.access.allowed_origins = {"a.example"}; }),
      Error);
  EXPECT_THROW(
      finish([](ServeOptions& o) {
        o.access.allowed_origins = {"https://a.example/path"};
      }),
      Error);
  EXPECT_THROW(
      finish([](ServeOptions& o) { o.access.api_keys = {"a b"}; }),
      Error);
  EXPECT_THROW(
      finish([](ServeOptions& o) { o.chat_template_args = "[1]"; }),
      Error);
  EXPECT_THROW(
      finish([](ServeOptions& o) { o.api_key_files = {"/no/such/file"}; }),
      Error);
}

TEST(ServeLog, LinesHoldNoControlCharactersAndNoQuery) {
  server::HttpRequest request;
  request.id = "req_1";
  request.peer = "127.0.0.1";
  request.method = "POST";
  request.path = "/v1/x\n\x1b[2J\xff";
  request.target = "/v1/x?secret=1";
  server::Served served;
  served.status = 200;
  served.bytes_sent = 12;
  served.seconds = 0.25;
  EXPECT_EQ(
      access_line("text", {request, served}, 1'700'000'000'123),
      "2023-11-14T22:13:20.123Z 127.0.0.1 \"POST /v1/x??[2J?\" 200 12 0.250s "
      "req_1");
  served.client_gone = true;
  auto line = access_line("json", {request, served}, 1'700'000'000'123);
  EXPECT_NE(line.find("\"status\":499"), std::string::npos);
  EXPECT_NE(line.find("\"path\":\"/v1/x??[2J?\""), std::string::npos);
  EXPECT_EQ(line.find("secret"), std::string::npos);
}

}  // namespace mlxx::apps
